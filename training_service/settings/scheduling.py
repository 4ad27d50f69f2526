"""Settings of scheduling: capacity, queues, priorities, and how the planner looks ahead."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from job_tracker.catalog.requested import PROCESSES_PER_INSTANCE
from job_tracker.common.config import Config, Duration
from job_tracker.common.printable import quoted
from job_tracker.domain import naming
from job_tracker.scheduling.options import HALF_LIFE
from job_tracker.scheduling.recipes import MOST_PRIORITY, Capacity, PoolName, QueueRecipe
from job_tracker.scheduling.tree import DEFAULT_PRIORITIES, Pool, Tree, delegated_pool, pool_of, tree_of

_OF_PLANNER: Final = ("capacity", "flavors", "reservations", "overtake_limit", "usage_half_life")
"""The settings that are not allowed if the cluster's own queue decides when jobs start."""


def _class(name: str) -> str:
    if not naming.is_project(name):
        raise ValueError(f"{quoted(name)} is not the name of a priority: {naming.PROJECT_RULE}")
    return name


class SchedulingSettings(Config):
    """The capacity of the service, its queues, and the order of jobs. See docs/scheduling.md."""

    delegate: Literal["kueue"] | None = Field(
        default=None,
        description="The queue of the cluster that decides when jobs start: `kueue`, with the backend "
        "`kubernetes`. Then capacity, quotas and preemption are configured in Kueue. See docs/scheduling.md. "
        "Unset: this service decides.",
    )
    delegate_waiting: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="For each queue of this service, the number of jobs that may wait in the queue of "
        "`delegate`. Further jobs wait in this service until one of these jobs starts.",
    )
    capacity: int = Field(
        default=8,
        ge=1,
        le=1_000_000,
        description="Number of instances (pods, containers or sessions of processes) that may run at once. "
        "Not allowed with `flavors` or `kubernetes.flavors`.",
    )
    flavors: dict[PoolName, Capacity] = Field(
        default={},
        max_length=100,
        description="Kinds of machines by name. Each has its capacity by resource, such as `instances = 16` "
        '(required), `cpu = "512"`, `memory = "2Ti"` and `"nvidia.com/gpu" = 128`. A resource without a '
        "capacity is not limited, with one exception: if one flavor has a capacity of a device, such as a "
        "GPU, flavors without a capacity of this device have no such devices. Unset: one flavor, `default`, "
        "with `capacity` instances.",
    )
    queues: dict[PoolName, QueueRecipe] = Field(
        default={},
        max_length=10_000,
        description="Queues by name, besides queues that are declared through the API. The queue `default` "
        "always exists. Changes apply without a restart.",
    )
    priorities: dict[
        Annotated[str, AfterValidator(_class)], Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
    ] = Field(
        default=dict(DEFAULT_PRIORITIES),
        max_length=100,
        description="Priority classes: names and their numbers. Within a queue, jobs with a higher "
        "number start first. Jobs that name no class have priority 0.",
    )
    reservations: int = Field(
        default=100,
        ge=0,
        le=10_000,
        description="Largest number of waiting jobs that have a reservation: no other job may delay their "
        "start. With a higher number, plans take longer.",
    )
    overtake_limit: int = Field(
        default=8,
        ge=0,
        le=1_000_000,
        description="Number of jobs that may start before the first waiting job while no start can be "
        "promised to it, for example because a running job has an unknown duration. The limit also applies "
        "to jobs of the same queue that may start before a job whose promised start was moved later. 0: no "
        "job may start before.",
    )
    usage_half_life: Duration = Field(
        default=HALF_LIFE,
        ge=timedelta(minutes=1),
        le=timedelta(days=3650),
        description="Time after which the past usage of a queue counts half as much for the order of queues.",
    )
    max_queued: int = Field(
        default=1_000_000,
        ge=1,
        description="Number of jobs that may wait in all queues together. Further jobs are refused with "
        "RESOURCE_EXHAUSTED.",
    )
    max_queued_of_caller: int = Field(
        default=100_000,
        ge=1,
        description="Number of jobs of one caller that may wait, in all projects together. Further jobs are "
        "refused with RESOURCE_EXHAUSTED. Without tokens and client certificates, all callers count as one "
        "caller.",
    )
    max_processes: int | None = Field(
        default=None,
        ge=1,
        le=256_000_000,
        description="Number of training processes that one job may have in all its instances "
        f"(PARALLEL_INSTANCES times nproc_per_node). Unset: {PROCESSES_PER_INSTANCE} times the capacity.",
    )

    def pool(
        self,
        followed: Collection[str] = (),
        labels: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> Pool:
        """Return the planner's pool: the flavors, and the priority classes.

        `followed` names flavors whose capacity follows the machines of the backend. `labels` has the labels
        of machines, by flavor.
        """
        if self.delegate is not None:
            return delegated_pool(self.priorities)
        return pool_of(self.flavors, self.capacity, self.priorities, followed, labels)

    def tree(self, followed: Collection[str] = ()) -> Tree:
        """Return the queues of the configuration, as the planner sees them.

        Raises ValueError if a queue does not fit the other queues or the flavors.
        """
        return tree_of(self.pool(followed), self.queues)

    def check(self, followed: Collection[str] = ()) -> None:
        """Raise ValueError with the first setting that does not fit the others."""
        if self.delegate is not None:
            self._check_delegated(followed)
        elif "delegate_waiting" in self.model_fields_set:
            raise ValueError(
                f"scheduling.delegate_waiting: {self.delegate_waiting} is not allowed without "
                "scheduling.delegate; remove it"
            )
        if (self.flavors or followed) and "capacity" in self.model_fields_set:
            others = "scheduling.flavors" if self.flavors else f"the flavors {', '.join(followed)}"
            raise ValueError(
                f"scheduling.capacity: {self.capacity} is not allowed with {others}, which have "
                "their own capacities; remove one of the two"
            )
        try:
            self.tree(followed)
        except ValueError as error:
            raise ValueError(f"scheduling.queues.{error}") from error

    def _check_delegated(self, followed: Collection[str]) -> None:
        by = self.delegate
        without = f"not allowed with scheduling.delegate = {by}, since {by} decides when jobs start"
        for name in _OF_PLANNER:
            if name in self.model_fields_set:
                raise ValueError(
                    f"scheduling.{name}: {without}; remove scheduling.{name}, and set limits in {by}"
                )
        if followed:
            raise ValueError(
                f"scheduling.delegate: {by} is not allowed with the flavors {', '.join(followed)} of the "
                f"backend, since {by} chooses the machines; remove scheduling.delegate or these flavors"
            )
