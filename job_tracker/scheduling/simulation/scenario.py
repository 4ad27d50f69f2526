"""Scenarios: jobs, machines and a policy, and what becomes of them. Several can be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from job_tracker.scheduling.model import DEFAULT_FLAVOR, INSTANCES, Limit, Queue
from job_tracker.scheduling.simulation.metrics import Fairness, Summary, over_time, summary
from job_tracker.scheduling.simulation.policies import DURATIONS, POLICIES, Knowledge, PolicyName
from job_tracker.scheduling.simulation.replay import Cluster, Record, replay
from job_tracker.scheduling.simulation.trace import TraceJob

SPANS: Final = 100
"""The number of points of fairness over time."""


@dataclass(frozen=True)
class Changes:
    """A what-if: what is different from the base."""

    add: Mapping[str, int] = field(default_factory=dict)
    """More instances, by flavor. A negative number takes some away."""
    quota: Mapping[str, int] = field(default_factory=dict)
    """The guaranteed instances of queues, in the default flavor."""

    def __bool__(self) -> bool:
        return bool(self.add or self.quota)

    def __str__(self) -> str:
        parts = [f"{flavor}{count:+d}" for flavor, count in self.add.items()]
        return ", ".join(parts + [f"quota {queue}={count}" for queue, count in self.quota.items()])

    def applied(self, cluster: Cluster) -> Cluster:
        """Return the changed cluster. Raises ValueError if no such cluster can be."""
        capacity = dict(cluster.capacity)
        for flavor, count in self.add.items():
            capacity[flavor] = capacity.get(flavor, 0) + count
            if capacity[flavor] < 0:
                raise ValueError(
                    f"add {flavor}={count} leaves {capacity[flavor]} instances; it must be 0 or more"
                )
        if not any(capacity.values()):
            raise ValueError("no instance is left; the capacity must be above 0")
        if (given := sum(self.quota.values())) > (most := capacity.get(DEFAULT_FLAVOR, 0)):
            raise ValueError(
                f"the quotas are {given} instances in all; at most the {most} of flavor "
                f"{DEFAULT_FLAVOR!r} can be guaranteed"
            )
        queues = {
            name: Queue(name=name, limits={DEFAULT_FLAVOR: {INSTANCES: Limit(nominal=count)}})
            for name, count in self.quota.items()
        }
        return replace(cluster, capacity=capacity, queues={**cluster.queues, **queues})


@dataclass(frozen=True)
class Scenario:
    """Jobs, machines and a policy."""

    policy: PolicyName
    jobs: Sequence[TraceJob]
    cluster: Cluster
    durations: Knowledge = Knowledge.EXACT
    changes: Changes = Changes()

    @property
    def name(self) -> str:
        """The policy, with what is changed."""
        return f"{self.policy.value}, {self.changes}" if self.changes else self.policy.value

    def run(self) -> "Result":
        """Simulate it. Raises ValueError if the changes do not fit."""
        cluster = self.changes.applied(self.cluster)
        records = replay(self.jobs, POLICIES[self.policy], cluster, DURATIONS[self.durations]())
        weights = {name: queue.weight for name, queue in cluster.queues.items()}
        return Result(
            name=self.name,
            instances=cluster.instances,
            summary=summary(records, cluster.instances),
            over_time=over_time(records, cluster.instances, SPANS, weights),
            records=records,
        )


@dataclass(frozen=True)
class Result:
    """What became of a scenario."""

    name: str
    instances: int
    summary: Summary
    over_time: Sequence[Fairness]
    records: Sequence[Record]
