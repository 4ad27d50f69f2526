"""Declarations of flavors and queues.

Both are declared in files of the service. Callers can also declare queues through the API.
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
        description="Amount of each resource that the queue may use beyond its quota, as long as other "
        "queues do not use it. A resource without an amount: no limit.",
    )
    lend: Amounts = Field(
        default={},
        description="Amount of each resource that other queues may use of this queue's unused "
        "quota. A resource without an amount: all of it.",
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
        description="Whether a waiting job stops running jobs of its queue that have a lower priority. "
        "Default without a parent: no.",
    )
    reclaim: bool | None = Field(
        default=None,
        description="Whether a waiting job that fits in the quota of its queue stops jobs of queues that use "
        "more than their quotas. Default without a parent: yes.",
    )
    min_runtime: Duration | None = Field(
        default=None,
        ge=timedelta(0),
        le=_LONGEST_RUNTIME,
        description="How long attempts of the queue run before they may be stopped for other jobs. Default "
        "without a parent: 0.",
    )
    max_preemptions: int | None = Field(
        default=None,
        ge=0,
        le=MOST_PREEMPTIONS,
        description="How often a job of the queue may be stopped for other jobs. 0: never. Default "
        f"without a parent: {PreemptionRules().max_preemptions}.",
    )
    protected: str | None = Field(
        default=None,
        max_length=64,
        description="Class of `scheduling.priorities`. Jobs of the queue with this priority or a higher one "
        "are never stopped for other jobs. Default without a parent: no class.",
    )
    resize_period: Duration | None = Field(
        default=None,
        ge=timedelta(0),
        le=_LONGEST_RUNTIME,
        description="How long attempts of elastic jobs of the queue run before the service may stop them so "
        "that they continue with more or fewer instances. 0: only preemptions change the number. "
        f"Default without a parent: {PreemptionRules().resize_period / 60:.0f} minutes.",
    )


class QueueRecipe(Config):
    """A queue, in which jobs wait; or a cohort, which is the parent of queues."""

    parent: Annotated[str, AfterValidator(_parent)] = Field(
        default="", description="The cohort to which the queue belongs. Empty: the queue has no parent."
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=_HEAVIEST,
        allow_inf_nan=False,
        description="The weight of this queue relative to the queues with the same parent: with twice the "
        "weight, it gets twice the share.",
    )
    quotas: dict[PoolName, QuotaRecipe] = Field(
        default={},
        max_length=_MOST_ENTRIES,
        description="Quotas by flavor. A resource without a quota here is limited only by the quotas of the "
        "parents and by the capacity.",
    )
    max_running: int | None = Field(
        default=None,
        ge=0,
        le=MOST_OF_A_QUEUE,
        description="Number of jobs of the queue, and of the queues below it, that may run at the same time. "
        "Unset: no limit. 0: no job starts.",
    )
    max_queued: int | None = Field(
        default=None,
        ge=0,
        le=MOST_OF_A_QUEUE,
        description="Number of jobs that may wait in the queue. Further jobs are refused with "
        "RESOURCE_EXHAUSTED. Unset: no limit. 0: all jobs are refused.",
    )
    max_priority: str | None = Field(
        default=None,
        max_length=64,
        description="Highest class of `scheduling.priorities` that jobs may have in this queue and in the "
        "queues below it. Unset: any class.",
    )
    preemption: PreemptionRecipe = Field(
        default=PreemptionRecipe(),
        description="Rules for stopping jobs of the queue, either to make room for other jobs, or to change "
        "their own number of instances.",
    )
    projects: tuple[Annotated[str, AfterValidator(_project)], ...] = Field(
        default=(),
        max_length=10_000,
        description="The projects whose jobs may use the queue. Empty: the projects of the parent. Without a "
        "parent: all projects.",
    )
