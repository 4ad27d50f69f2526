"""Scenarios: jobs, machines, a policy, and the outcome. Several scenarios can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.scheduling.simulation.cluster import Changes, Cluster
from job_tracker.scheduling.simulation.metrics import Fairness, Summary, over_time, summary
from job_tracker.scheduling.simulation.policies import DURATIONS, Knowledge, PolicyName, policy_of
from job_tracker.scheduling.simulation.record import Record
from job_tracker.scheduling.simulation.replay import replay
from job_tracker.scheduling.simulation.trace import TraceJob

SPANS: Final = 100
"""The number of spans of equal length for which fairness is computed."""


NO_CHANGES: Final = Changes()


@dataclass(frozen=True)
class Scenario:
    """Jobs, machines and a policy."""

    policy: PolicyName
    jobs: Sequence[TraceJob]
    cluster: Cluster
    durations: Knowledge = Knowledge.EXACT
    changes: Changes = NO_CHANGES

    @property
    def name(self) -> str:
        """The name of the policy, followed by the changes of the cluster if there are any."""
        return f"{self.policy.value}, {self.changes}" if self.changes else self.policy.value

    def run(self) -> "Result":
        """Simulate the scenario. Raises ValueError if the changes or the policy do not fit the cluster."""
        cluster = self.changes.applied(self.cluster)
        records = replay(self.jobs, policy_of(self.policy, cluster), cluster, DURATIONS[self.durations]())
        weights = {name: queue.weight for name, queue in cluster.queues.items()}
        return Result(
            name=self.name,
            instances=cluster.instances,
            summary=summary(records, cluster.resources),
            over_time=over_time(records, cluster.resources, SPANS, weights),
            records=records,
        )


@dataclass(frozen=True)
class Result:
    """The figures and the records of a simulated scenario."""

    name: str
    instances: int
    summary: Summary
    over_time: Sequence[Fairness]
    records: Sequence[Record]
