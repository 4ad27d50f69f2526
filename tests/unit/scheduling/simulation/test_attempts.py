"""Jobs that are stopped in simulations: the loss with each way to save, and how the jobs continue."""

from dataclasses import replace

import pytest

from job_tracker.scheduling.model import Allocation, Plan, PreemptionRules, Queue, Snapshot
from job_tracker.scheduling.simulation.attempts import Saving
from job_tracker.scheduling.simulation.cluster import Changes, Cluster
from job_tracker.scheduling.simulation.metrics import summary
from job_tracker.scheduling.simulation.policies import PolicyName, policy_of
from job_tracker.scheduling.simulation.record import Record
from job_tracker.scheduling.simulation.replay import replay
from job_tracker.scheduling.simulation.trace import Begun, TraceJob

NOTICE, NEVER = Saving(), Saving(on_notice=False)
CHEAP = Saving(every=10.0, startup=1.0)
"""A stop loses so little that no job waits instead, even for 5 s."""


def cluster(instances: int, **rules: float | bool) -> Cluster:
    queue = Queue(name="default", preemption=PreemptionRules(**rules))  # type: ignore[arg-type]
    return replace(Cluster.of(instances), queues={"default": queue})


def played(
    *jobs: TraceJob, capacity: int = 1, policy: PolicyName = PolicyName.PLANNER, **rules: float | bool
) -> list[Record]:
    where = cluster(capacity, **{"by_priority": True, **rules})
    return replay(jobs, policy_of(policy, where), where)


@pytest.mark.parametrize(
    ("saving", "lost"),
    [
        (NOTICE, 10 + 60),
        (NEVER, 310 + 60),
        (Saving(every=120.0, on_notice=False), 70 + 60),
        (Saving(every=500.0, on_notice=False), 310 + 60),
        (Saving(startup=5.0), 10 + 5),
    ],
    ids=[
        "saves at the notice",
        "never saves",
        "saves every 2 minutes",
        "has not saved yet",
        "starts quickly",
    ],
)
def test_a_stop_loses_what_is_not_saved_and_the_time_to_get_going_again(saving: Saving, lost: float) -> None:
    """The notice comes after 300 s, and the group has ended 10 s later."""
    low = TraceJob(0, 1000, 1, saving=saving)
    stopped, urgent = played(low, TraceJob(300, 50, 1, priority=1))
    assert urgent.started_at == 310
    assert stopped.spans[0].end == 310
    assert stopped.lost == pytest.approx(lost)
    assert stopped.ended_at == pytest.approx(1000 + 50 + lost)
    figures = summary([stopped, urgent], {"instances": 1})
    assert (figures.stopped, figures.resized) == (1, 0)
    assert figures.lost == pytest.approx(lost)
    assert figures.utilisation == pytest.approx(1050 / stopped.ended_at)
    assert figures.unstarted == 0


def test_the_planner_stops_what_has_just_saved_and_its_peer_the_newest() -> None:
    jobs = (
        TraceJob(0, 10_000, 1, saving=Saving(every=100.0, on_notice=False)),
        TraceJob(1, 10_000, 1, saving=NEVER),
        TraceJob(2050, 10, 1, priority=1),
    )
    mine, peer = (
        [len(record.stops) for record in played(*jobs, capacity=2, policy=policy)]
        for policy in (PolicyName.PLANNER, PolicyName.NEWEST)
    )
    assert (mine, peer) == ([1, 0, 0], [0, 1, 0])


def test_a_job_that_ends_during_the_notice_was_not_stopped() -> None:
    low, urgent = played(TraceJob(0, 305, 1, saving=CHEAP), TraceJob(300, 50, 1, priority=1))
    assert (low.ended_at, low.stops, low.lost) == (305, [], 0)
    assert urgent.started_at == 305


def test_what_a_job_frees_that_ends_during_the_notice_is_for_the_job_for_which_it_was_stopped() -> None:
    """Without the claim, the job of the other queue would start, because no job of that queue runs."""
    queue = Queue(name="default", preemption=PreemptionRules(by_priority=True))
    where = replace(Cluster.of(6), queues={"default": queue, "unused": Queue(name="unused")})
    beside, low = TraceJob(0, 1000, 2, priority=1), TraceJob(0, 305, 4, saving=CHEAP)
    urgent, rival = TraceJob(300, 50, 4, priority=1), TraceJob(301, 50, 4, queue="unused")
    planner = policy_of(PolicyName.PLANNER, where)
    records = replay([beside, low, urgent, rival], planner, where)
    assert [record.started_at for record in records] == [0, 0, 305, 355]
    claims: list[list[int]] = []

    def watched(snapshot: Snapshot, now: float) -> Plan:
        claims.append(list(snapshot.claims))
        return planner(snapshot, now)

    replay([beside, low, urgent, rival], watched, where)
    assert any(claims), "the job was to be stopped"
    assert claims[-1] == [], "the claim ends with the start"


def test_without_the_rule_of_the_queue_nothing_is_stopped() -> None:
    low, _ = played(TraceJob(0, 1000, 1), TraceJob(300, 50, 1, priority=1), by_priority=False)
    assert low.ended_at == 1000
    changed = Changes(by_priority=True)
    assert str(changed) == "preempt"
    where = changed.applied(cluster(1))
    low, _ = replay(
        [TraceJob(0, 1000, 1), TraceJob(300, 50, 1, priority=1)], policy_of(PolicyName.PLANNER, where), where
    )
    assert len(low.stops) == 1


def test_an_elastic_job_grows_when_others_end_and_ends_earlier() -> None:
    """It begins with 1 of 4 trainers, so 40,000 s of work take four times as long."""
    first = TraceJob(0, 3000, 3)
    elastic = TraceJob(1, 40_000, 4, least=1)
    _, alone = played(first, elastic, capacity=4, resize_period=0.0)
    assert alone.ended_at == 160_001
    _, grown = played(first, elastic, capacity=4)
    assert [span.held["instances"] for span in grown.spans] == [1, 4]
    # 3,000 s with one trainer, then 10 s to stop, 60 s to restart, and the remaining work with four.
    assert grown.ended_at == pytest.approx(3000 + 10 + 60 + 40_000 - 2999 / 4)
    figures = summary([grown], {"instances": 4})
    assert (figures.stopped, figures.resized) == (0, 1)


def test_a_job_that_runs_at_the_beginning_has_saved_when_the_service_says_so() -> None:
    begun = Begun(-1000, Allocation(), saved_at=-10)
    low = TraceJob(-1000, 5000, 1, begun=begun, saving=NEVER)
    stopped, _ = played(low, TraceJob(0, 50, 1, priority=1))
    assert stopped.lost == pytest.approx(10 + 10 + 60)
