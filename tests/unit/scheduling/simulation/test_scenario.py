"""Scenarios and their what-ifs."""

import pytest

from job_tracker.scheduling.simulation.cluster import Changes, Cluster, Quota
from job_tracker.scheduling.simulation.policies import Knowledge, PolicyName
from job_tracker.scheduling.simulation.scenario import Scenario
from job_tracker.scheduling.simulation.trace import TraceJob

JOBS = [TraceJob(at, 100, 2) for at in range(0, 500, 10)]


@pytest.mark.parametrize("policy", PolicyName)
@pytest.mark.parametrize("knowledge", Knowledge)
def test_each_policy_runs_all_jobs(policy: PolicyName, knowledge: Knowledge) -> None:
    result = Scenario(policy, JOBS, Cluster.of(4), knowledge).run()
    assert result.summary.unstarted == 0
    assert result.name == policy.value


def test_added_instances_shorten_waiting() -> None:
    base = Scenario(PolicyName.EASY, JOBS, Cluster.of(4)).run()
    changes = Changes({"default": 4, "a100": 2}, [Quota("default", 3)])
    more = Scenario(PolicyName.EASY, JOBS, Cluster.of(4).with_queues(["default"]), changes=changes).run()
    assert more.summary.waits.mean < base.summary.waits.mean
    assert more.instances == 10
    assert more.name == "easy, default+4, a100+2, quota default=3"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (Changes({"default": -5}), "add default=-5 leaves -1 instances"),
        (Changes({"default": -4}), "the changes remove all instances"),
        (
            Changes(quota=[Quota("a", 3), Quota("b", 2)]),
            "the quotas are 5 instances in all; flavor",
        ),
    ],
)
def test_changes_that_cannot_be_are_refused(changes: Changes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        changes.applied(Cluster.of(4).with_queues("ab"))
