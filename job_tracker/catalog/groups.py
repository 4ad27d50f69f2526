"""The composition of a group: the instances of each role, and whether the group may lose instances."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from job_tracker.catalog.parameters import INSTANCES_PARAMETER, Parameter
from job_tracker.common.config import Config
from job_tracker.domain import naming
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import FRAMEWORKS, Traits
from job_tracker.frameworks.base import TRAINERS

MIN_INSTANCES_PARAMETER = "MIN_INSTANCES"
MAX_LOST_PARAMETER = "MAX_LOST_INSTANCES"
_MOST = 10_000
_CAPACITY = "the service's capacity"


class RoleRecipe(Config):
    """A role besides the master and the workers. Options that it does not set have the algorithm's values."""

    instances: int = Field(
        default=1,
        ge=0,
        le=_MOST,
        description="Number of instances if the request does not set ROLE_INSTANCES, such as PS_INSTANCES.",
    )
    max_instances: int | None = Field(
        default=None,
        ge=1,
        le=_MOST,
        description="Largest number of instances in a request. Unset: the capacity (`scheduling.capacity` or "
        "`scheduling.flavors`).",
    )
    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Program and arguments of this role. Unset: the command of the algorithm.",
    )

    def options(self, backend: str) -> Any:
        """Return the options of this role on a backend; None if the backend has no options for roles."""
        return getattr(self, backend, None)


class ElasticRecipe(Config):
    """Elastic groups: a lost worker is restarted in the same attempt.

    Meanwhile, the other instances continue from the last checkpoint, if enough of them are left.
    """

    min_instances: int = Field(
        default=1,
        ge=1,
        le=_MOST,
        description="Smallest number of instances that train, if the request does not set MIN_INSTANCES. "
        "With fewer instances, training waits.",
    )
    max_restarts: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="Number of restarts of workers in one attempt. After that, the next loss of a worker "
        "ends the attempt.",
    )


@dataclass(frozen=True, slots=True)
class Composition:
    """A group as requested: the number of instances of each role, in the order of ranks."""

    roles: Mapping[str, int]
    elastic: Elastic | None
    ends_with_master: bool
    """True if some instances, such as parameter servers, run until the master has ended."""
    max_lost: int = 0
    """The number of instances other than rank 0 that may fail while the attempt continues without them."""

    @property
    def size(self) -> int:
        """The number of all instances."""
        return sum(self.roles.values())

    @property
    def trainers(self) -> int:
        """The number of instances that train: those with the role master or worker."""
        return sum(count for role, count in self.roles.items() if role in TRAINERS)


def instances_parameter(role: str) -> str:
    """Return the name of the parameter for the number of instances of a role."""
    return f"{role.upper()}_INSTANCES"


GROUP_PARAMETERS = frozenset(
    {
        INSTANCES_PARAMETER,
        MIN_INSTANCES_PARAMETER,
        MAX_LOST_PARAMETER,
        *(instances_parameter(role) for framework in FRAMEWORKS.values() for role in framework.traits.roles),
    }
)
"""Parameters that define the group. No algorithm may declare one of these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """Composes the groups of one algorithm from the parameters of requests."""

    framework: str
    roles: Mapping[str, RoleRecipe]
    elastic: ElasticRecipe | None
    max_instances: int | None
    max_lost: int = 0

    @property
    def traits(self) -> Traits:
        """The traits of the algorithm's framework."""
        return FRAMEWORKS[self.framework].traits

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that define the group."""
        least = (MIN_INSTANCES_PARAMETER,) if self.elastic else ()
        lost = (MAX_LOST_PARAMETER,) if self.max_lost else ()
        return (INSTANCES_PARAMETER, *least, *lost, *map(instances_parameter, self.roles))

    def problem(self) -> str | None:
        """Return the first conflict of a setting of the algorithm with another setting or with the framework.

        None: there is no conflict.
        """
        for role, recipe in self.roles.items():
            known = self.traits.roles.get(role)
            if known is None:
                allowed = ", ".join(self.traits.roles) or "none"
                return f"roles.{role}: framework {self.framework} has no such role; allowed: {allowed}"
            most = known.at_most
            if most is not None and max(recipe.instances, recipe.max_instances or 0) > most:
                return (
                    f"roles.{role}: framework {self.framework} allows at most {most} instances of this role"
                )
            if recipe.max_instances is not None and recipe.instances > recipe.max_instances:
                return (
                    f"roles.{role}.instances: {recipe.instances} is not allowed: max_instances is "
                    f"{recipe.max_instances}"
                )
        if self.elastic is not None and not self.traits.is_elastic:
            able = ", ".join(name for name, each in FRAMEWORKS.items() if each.traits.is_elastic)
            return f"elastic: framework {self.framework} does not support it; allowed: {able}"
        if self.elastic is not None and self.max_lost:
            return (
                f"max_lost: {self.max_lost} is not allowed with elastic, which restarts lost workers; leave "
                "one of them out"
            )
        if self.elastic is not None and self.elastic.min_instances > (self.max_instances or _MOST):
            return (
                f"elastic.min_instances: {self.elastic.min_instances} is not allowed: max_instances is "
                f"{self.max_instances}"
            )
        return None

    def check_name(self, name: str) -> None:
        """Raise InvalidField if the algorithm does not support this parameter of GROUP_PARAMETERS."""
        field = f"parameters.{name}"
        if name == INSTANCES_PARAMETER:
            return
        if name == MIN_INSTANCES_PARAMETER:
            if self.elastic is None:
                raise InvalidField(
                    field, "not allowed: the algorithm is not elastic; leave the parameter out"
                )
            return
        if name == MAX_LOST_PARAMETER:
            if not self.max_lost:
                raise InvalidField(
                    field,
                    "not allowed: max_lost of the algorithm is 0, so the loss of any instance ends the "
                    "attempt; leave the parameter out",
                )
            return
        known = {instances_parameter(role): role for role in self.roles}
        if name not in known:
            of_framework = {instances_parameter(role): role for role in self.traits.roles}
            reason = (
                f"the algorithm has no role {of_framework[name]}"
                if name in of_framework
                else f"framework {self.framework} has no such role"
            )
            raise InvalidField(field, f"not allowed: {reason}; leave the parameter out")

    def compose(self, sent: Mapping[str, str], capacity: int) -> Composition:
        """Return the group for the parameters of a request; `capacity` bounds its number of instances.

        Raises InvalidField if a parameter is not allowed.
        """
        most, reason = _least((capacity, _CAPACITY), (self.max_instances, "the algorithm's max_instances"))
        if sent.get(INSTANCES_PARAMETER) == "auto":
            raise InvalidField(
                f"parameters.{INSTANCES_PARAMETER}",
                f"'auto' is not allowed: a job has one number of instances, at least 1 and at most {most}; "
                "`trainctl submit --instances auto` finds it by a short study",
            )
        trainers = _number(sent, INSTANCES_PARAMETER, default=1, minimum=1, maximum=most, reason=reason)
        others = {role: count for role in self.traits.roles if (count := self._count(role, sent, capacity))}
        for role, count in others.items():
            if self.traits.roles[role].needs_worker and trainers < 2:
                raise InvalidField(
                    f"parameters.{INSTANCES_PARAMETER}",
                    f"{trainers} is not allowed with {instances_parameter(role)} {count}, because "
                    "the group needs a worker besides the master; at least 2 is allowed",
                )
        if trainers + sum(others.values()) > capacity:
            words = " and ".join(f"{count} of role {role}" for role, count in others.items())
            raise InvalidField(
                f"parameters.{INSTANCES_PARAMETER}",
                f"{trainers} with {words} makes {trainers + sum(others.values())} instances; the "
                f"service's capacity allows at most {capacity}",
            )
        return Composition(
            self._in_order(trainers, others),
            self._elastic(sent, trainers),
            ends_with_master=any(self.traits.roles[role].serves for role in others),
            max_lost=self._max_lost(sent, trainers + sum(others.values())),
        )

    def _max_lost(self, sent: Mapping[str, str], instances: int) -> int:
        most = min(self.max_lost, instances - 1)  # the loss of rank 0 always ends the attempt
        return _number(sent, MAX_LOST_PARAMETER, default=0, minimum=0, maximum=most)

    def _count(self, role: str, sent: Mapping[str, str], capacity: int) -> int:
        recipe = self.roles.get(role)
        if recipe is None:
            return 0
        most, reason = _least(
            (capacity, _CAPACITY),
            (recipe.max_instances, f"the algorithm's roles.{role}.max_instances"),
            (self.traits.roles[role].at_most, f"framework {self.framework}"),
        )
        name = instances_parameter(role)
        return _number(sent, name, default=recipe.instances, minimum=0, maximum=most, reason=reason)

    def _in_order(self, trainers: int, others: Mapping[str, int]) -> dict[str, int]:
        leading = next((role for role in others if self.traits.roles[role].takes_rank_0), None)
        if leading is not None:
            rest = {role: count for role, count in others.items() if role != leading}
            return {leading: 1, naming.WORKER: trainers, **rest}
        workers = {naming.WORKER: trainers - 1} if trainers > 1 else {}
        return {naming.MASTER: 1, **workers, **others}

    def _elastic(self, sent: Mapping[str, str], trainers: int) -> Elastic | None:
        if self.elastic is None:
            return None
        default = min(self.elastic.min_instances, trainers)
        least = _number(sent, MIN_INSTANCES_PARAMETER, default=default, minimum=1, maximum=_MOST)
        if least > trainers:
            raise InvalidField(
                f"parameters.{MIN_INSTANCES_PARAMETER}",
                f"{least} is not allowed: {INSTANCES_PARAMETER} is {trainers}; at most {trainers} is allowed",
            )
        return Elastic(min_instances=least, max_restarts=self.elastic.max_restarts)


def _least(*bounds: tuple[int | None, str]) -> tuple[int, str]:
    """Return the smallest of the bounds that are set, with its name."""
    return min((bound, name) for bound, name in bounds if bound is not None)


def _number(
    sent: Mapping[str, str], name: str, *, default: int, minimum: int, maximum: int, reason: str = ""
) -> int:
    text = sent.get(name, str(default))
    Parameter(type="int", minimum=minimum, maximum=maximum).check(f"parameters.{name}", text, reason)
    return int(text)
