"""Declarations of flavors and queues.

Both are declared in files of the service; queues can be declared by the API, too.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from job_tracker.catalog.syntax import Quantity, amount, resource_name
from job_tracker.common.config import Config, Duration
from job_tracker.common.printable import quoted
from job_tracker.domain import naming
from job_tracker.scheduling.model import INSTANCES, PreemptionRules

MOST_OF_A_QUEUE = 10_000_000
MOST_PRIORITY = 1_000_000
MOST_PREEMPTIONS = 1000
_LONGEST_RUNTIME = timedelta(days=365)
_HEAVIEST = 1_000_000.0
_MOST_ENTRIES = 1000


def _name(name: str) -> str:
    if not naming.is_project(name):
        raise ValueError(f"{quoted(name)} is not allowed: {naming.PROJECT_RULE}")
    return name


def _parent(name: str) -> str:
    return _name(name) if name else ""


def _project(name: str) -> str:
    if not naming.is_project(name):
        raise ValueError(f"{quoted(name)} is not the name of a project: {naming.PROJECT_RULE}")
    return name


def _whole(resource: str, quantity: str) -> None:
    if resource == INSTANCES and amount(quantity) % 1:
        raise ValueError(f"{quoted(quantity)} of {INSTANCES} is not allowed: it must be a whole number")


def _amounts(amounts: dict[str, str]) -> dict[str, str]:
    for resource, quantity in amounts.items():
        _whole(resource, quantity)
    return amounts


def _capacity(amounts: dict[str, str]) -> dict[str, str]:
    if INSTANCES not in amounts:
        raise ValueError(f"{INSTANCES} is missing: set the number of instances that may run at the same time")
    for resource, quantity in amounts.items():
        if not amount(quantity):
            raise ValueError(f"{quoted(quantity)} of {resource} is not allowed: it must be more than 0")
    return amounts


PoolName = Annotated[str, AfterValidator(_name)]
"""The name of a flavor or of a queue."""


def _counted(name: str) -> str:
    return name if name == INSTANCES else resource_name(name)


Amounts = Annotated[
    dict[Annotated[str, AfterValidator(_counted)], Quantity],
    Field(max_length=_MOST_ENTRIES),
    AfterValidator(_amounts),
]
"""Quantities by resource. Besides the resources of containers, `instances` is a resource."""
Capacity = Annotated[Amounts, AfterValidator(_capacity)]


class QuotaRecipe(Config):
    """A queue's quotas of one flavor."""

    nominal: Amounts = Field(
        description="Amount of each resource that is guaranteed to the queue and the queues below it."
    )
    borrow: Amounts = Field(
        default={},
        description="How much more it may use of what other queues with the same parent do not use. Unset: "
        "all of it.",
    )
    lend: Amounts = Field(
        default={}, description="How much of its unused quota others may use. Unset: all of it."
    )

    @model_validator(mode="after")
    def _of_known_resources(self) -> "QuotaRecipe":
        for name, amounts in (("borrow", self.borrow), ("lend", self.lend)):
            for resource in amounts:
                if resource not in self.nominal:
                    raise ValueError(
                        f"{name}.{resource} is not allowed: there is no nominal.{resource}; set that, too"
                    )
        return self


class PreemptionRecipe(Config):
    """The rules by which jobs are stopped for others. A rule that is not set is inherited from the parent."""

    by_priority: bool | None = Field(
        default=None,
        description="Whether a waiting job stops running ones of its queue that have a lower priority. At "
        "the top: no.",
    )
    reclaim: bool | None = Field(
        default=None,
        description="Whether a waiting job within the quota of its queue stops jobs of queues that use more "
        "than theirs. At the top: yes.",
    )
    min_runtime: Duration | None = Field(
        default=None,
        ge=timedelta(0),
        le=_LONGEST_RUNTIME,
        description="How long attempts of the queue run before they may be stopped for others. At the top: "
        "0.",
    )
    max_preemptions: int | None = Field(
        default=None,
        ge=0,
        le=MOST_PREEMPTIONS,
        description="How often a job of the queue may be stopped for others. 0: never. At the top: "
        f"{PreemptionRules().max_preemptions}.",
    )
    protected: str | None = Field(
        default=None,
        max_length=64,
        description="Class of `scheduling.priorities`. Jobs of the queue with this priority or a higher one "
        "are never stopped for others. At the top: none.",
    )
    resize_period: Duration | None = Field(
        default=None,
        ge=timedelta(0),
        le=_LONGEST_RUNTIME,
        description="How long attempts of elastic jobs of the queue run before they may go on with more or "
        "with fewer instances. 0: their size never changes. At the top: "
        f"{PreemptionRules().resize_period / 60:.0f} minutes.",
    )


class QueueRecipe(Config):
    """A queue, in which jobs wait; or a cohort, which is the parent of queues."""

    parent: Annotated[str, AfterValidator(_parent)] = Field(
        default="", description="The cohort that it is in. Empty: it is at the top."
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=_HEAVIEST,
        allow_inf_nan=False,
        description="Its share compared with the queues that have the same parent.",
    )
    quotas: dict[PoolName, QuotaRecipe] = Field(
        default={},
        max_length=_MOST_ENTRIES,
        description="Quotas by flavor. A resource without a quota is limited by those of the parents and by "
        "the capacity only.",
    )
    max_running: int | None = Field(
        default=None,
        ge=0,
        le=MOST_OF_A_QUEUE,
        description="Number of its jobs that may run at the same time. 0: no job starts.",
    )
    max_queued: int | None = Field(
        default=None,
        ge=0,
        le=MOST_OF_A_QUEUE,
        description="Number of jobs that may wait in the queue. Further ones are refused with "
        "RESOURCE_EXHAUSTED. 0: it takes no jobs.",
    )
    max_priority: str | None = Field(
        default=None,
        max_length=64,
        description="Highest class of `scheduling.priorities` that jobs may have here, and in the "
        "queues below.",
    )
    preemption: PreemptionRecipe = Field(
        default=PreemptionRecipe(),
        description="When its jobs are stopped for others, or to go on in another size.",
    )
    projects: tuple[Annotated[str, AfterValidator(_project)], ...] = Field(
        default=(),
        max_length=10_000,
        description="The projects that may use it. Empty: those of the parent; at the top, all.",
    )
