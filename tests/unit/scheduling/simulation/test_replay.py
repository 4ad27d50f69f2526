"""The replay: events in order, policies that break rules, usage, promises and wake-ups."""

import math
from dataclasses import replace

import pytest

from job_tracker.scheduling.model import (
    Admit,
    Allocation,
    Expected,
    Flavor,
    Part,
    Plan,
    Promise,
    Reason,
    Reserve,
    Snapshot,
    Usage,
    Waiting,
)
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.simulation.attempts import STOP_SECONDS, Saving
from job_tracker.scheduling.simulation.cluster import BEGIN, Cluster
from job_tracker.scheduling.simulation.durations import ExactDurations, SaidDurations, UnknownDurations
from job_tracker.scheduling.simulation.metrics import is_kept
from job_tracker.scheduling.simulation.peers import fifo
from job_tracker.scheduling.simulation.policies import PolicyName, policy_of
from job_tracker.scheduling.simulation.replay import PolicyError, replay
from job_tracker.scheduling.simulation.spot import Spot
from job_tracker.scheduling.simulation.trace import Begun, TraceJob


def test_an_end_frees_its_instances_for_a_submission_of_the_same_moment() -> None:
    records = replay([TraceJob(0, 10, 4), TraceJob(10, 1, 4)], fifo, Cluster.of(4))
    assert [record.waited for record in records] == [0, 0]


def test_higher_priorities_go_first() -> None:
    jobs = [TraceJob(0, 10, 1), TraceJob(1, 10, 1), TraceJob(2, 10, 1, priority=5)]
    assert [record.started_at for record in replay(jobs, fifo, Cluster.of(1))] == [0, 20, 10]


def test_a_job_that_is_started_twice_is_an_error_of_the_policy() -> None:
    def twice(snapshot: Snapshot, now: float) -> Plan:
        return Plan(admitted=(Admit(1, Allocation()), Admit(1, Allocation())))

    with pytest.raises(PolicyError, match="job 1 is started, but it does not wait"):
        replay([TraceJob(0, 1, 1)], twice, Cluster.of(4))


def test_a_job_that_is_started_on_more_than_there_is_is_an_error_of_the_policy() -> None:
    def all_at_once(snapshot: Snapshot, now: float) -> Plan:
        return Plan(admitted=tuple(Admit(gang.job_id, Allocation()) for gang in in_order(snapshot)))

    with pytest.raises(PolicyError, match="job 2 is started on 3 instances of flavor 'default'; 1 are free"):
        replay([TraceJob(0, 1, 3), TraceJob(0, 1, 3)], all_at_once, Cluster.of(4))


def in_order(snapshot: Snapshot) -> list:  # type: ignore[type-arg]
    return [gang for queue in snapshot.waiting.queues() for gang in snapshot.waiting.in_order(queue)]


def test_the_policy_is_asked_again_when_it_wants_to_be() -> None:
    asked = []

    def later(snapshot: Snapshot, now: float) -> Plan:
        asked.append(now - BEGIN)
        return Plan(next_at=now + 5) if now < BEGIN + 12 else fifo(snapshot, now)

    (record,) = replay([TraceJob(0, 1, 1)], later, Cluster.of(1))
    assert asked[:4] == [0, 5, 10, 15]
    assert record.started_at == 15


def test_a_policy_that_never_starts_a_job_ends_the_replay() -> None:
    (record,) = replay([TraceJob(0, 1, 1)], lambda _snapshot, _now: Plan(), Cluster.of(1))
    assert record.started_at is None


def test_promises_come_back_in_the_next_snapshot_and_the_first_one_is_kept() -> None:
    seen = []

    def promising(snapshot: Snapshot, now: float) -> Plan:
        seen.append(dict(snapshot.promises))
        plan = fifo(snapshot, now)
        admitted = {each.job_id for each in plan.admitted}
        reserved = [
            Reserve(gang.job_id, Promise(now + 10, "default"), (Reason.CAPACITY,), "a reason")
            for gang in in_order(snapshot)
            if gang.job_id not in admitted
        ]
        return Plan(admitted=plan.admitted, reserved=tuple(reserved))

    records = replay([TraceJob(0, 30, 1), TraceJob(1, 1, 1), TraceJob(2, 1, 1)], promising, Cluster.of(1))
    assert records[1].first_promise == 11
    assert records[1].moves == ["a reason", "a reason"]
    assert seen[2] == {2: Promise(BEGIN + 11, "default")}


def test_a_reservation_without_a_start_is_no_promise() -> None:
    def promising_later(snapshot: Snapshot, now: float) -> Plan:
        plan = fifo(snapshot, now)
        waiting = {gang.job_id for gang in in_order(snapshot)} - {each.job_id for each in plan.admitted}
        at = now + 10 if now >= BEGIN + 2 else math.inf
        reserved = [Reserve(each, Promise(at, "default"), (Reason.CAPACITY,)) for each in waiting]
        return Plan(admitted=plan.admitted, reserved=tuple(reserved))

    unpromised = TraceJob(0, 1, 1, promise=Promise(math.inf, "default"))
    jobs = [TraceJob(0, 30, 1), unpromised, TraceJob(1, 1, 1), TraceJob(2, 1, 1)]
    records = replay(jobs, promising_later, Cluster.of(1))
    assert [record.first_promise for record in records] == [None, 12, 12, 12]
    assert not is_kept(records[1])


def test_usage_of_queues_decays_by_half_in_its_half_life() -> None:
    seen = []

    def watching(snapshot: Snapshot, now: float) -> Plan:
        seen.append({name: usage.amounts for name, usage in snapshot.usage.items()})
        return fifo(snapshot, now)

    jobs = [TraceJob(0, 1, 2, "a"), TraceJob(1001, 1, 1, "b")]
    replay(jobs, watching, replace(Cluster.of(2), options=PlannerOptions(half_life=1000)))
    first, last = seen[1]["a"]["default"]["instances"], seen[2]["a"]["default"]["instances"]
    assert first == pytest.approx(2, rel=0.001)
    assert last == pytest.approx(first / 2)


def test_durations_are_known_as_the_simulation_says() -> None:
    job = TraceJob(0, 5, 1)
    exact = ExactDurations().expected(job)
    assert exact is not None
    assert (exact.median, exact.high) == (5, 5)
    assert UnknownDurations().expected(job) is None


def test_jobs_that_run_at_the_beginning_hold_what_they_have_until_they_end() -> None:
    running = TraceJob(-50, 100, 3, begun=Begun(-40, Allocation()))
    waiting = TraceJob(-30, 10, 2)
    records = replay([running, waiting], fifo, Cluster.of(4))
    assert [record.started_at for record in records] == [-40, 60]
    assert [record.has_waited for record in records] == [False, True]
    assert records[1].waited == 90


def test_usage_from_before_the_beginning_counts() -> None:
    seen = []

    def watching(snapshot: Snapshot, now: float) -> Plan:
        seen.append(dict(snapshot.usage))
        return fifo(snapshot, now)

    before = {"a": Usage(BEGIN, {"default": {"instances": 7.0}})}
    replay([TraceJob(0, 1, 1, "a"), TraceJob(0, 1, 1, "b")], watching, replace(Cluster.of(2), usage=before))
    assert seen[0]["a"] == before["a"]


def test_all_resources_count() -> None:
    def all_at_once(snapshot: Snapshot, now: float) -> Plan:
        return Plan(admitted=tuple(Admit(gang.job_id, Allocation()) for gang in in_order(snapshot)))

    flavor = Flavor(name="default", capacity={"instances": 4, "cpu": 1000})
    parts = (Part(1, {"instances": 1, "cpu": 600}),)
    (record,) = replay([TraceJob(0, 1, 1, each=parts)], all_at_once, Cluster((flavor,)))
    assert [span.held for span in record.spans] == [{"instances": 1, "cpu": 600}]
    with pytest.raises(PolicyError, match="job 2 is started on 600 cpu of flavor 'default'; 400 are free"):
        replay(
            [TraceJob(0, 1, 1, each=parts), TraceJob(0, 1, 1, each=parts)], all_at_once, Cluster((flavor,))
        )


def test_what_was_said_is_what_the_policy_knows() -> None:
    said = Expected(median=3, high=4)
    assert SaidDurations().expected(TraceJob(0, 5, 1, said=said)) == said
    assert SaidDurations().expected(TraceJob(0, 5, 1)) is None


def test_further_jobs_may_come_while_some_run() -> None:
    def one_more(now: float, waiting: Waiting) -> list[TraceJob]:
        assert not len(waiting)
        return [TraceJob(now, 10, 1)] if now <= 20 else []

    records = replay([TraceJob(0, 10, 1)], fifo, Cluster.of(1), more=one_more)
    assert [record.started_at for record in records] == [0, 10, 20]


def test_an_earlier_promise_is_the_first_and_is_seen_by_the_policy() -> None:
    seen = []

    def watching(snapshot: Snapshot, now: float) -> Plan:
        seen.append(dict(snapshot.promises))
        return fifo(snapshot, now)

    (record,) = replay([TraceJob(-5, 1, 1, promise=Promise(7, "default"))], watching, Cluster.of(1))
    assert seen[0] == {1: Promise(BEGIN + 7, "default")}
    assert record.first_promise == 7


def test_a_job_whose_machine_is_taken_away_waits_again_and_goes_on_from_what_it_saved() -> None:
    cluster = replace(Cluster.of(2), spot=Spot(mean=1000.0, seed=3))
    (record,) = replay([TraceJob(0, 5000.0, 2)], policy_of(PolicyName.PLANNER, cluster), cluster)
    assert record.is_done
    assert record.evictions == len(record.spans) - 1 > 3
    assert record.stops == [], "nothing was stopped for another job"
    assert record.waited == 0.0, "its place is free again at once"
    trained = sum(span.end - span.begin - span.lost for span in record.spans)
    assert trained == pytest.approx(5000.0)
    assert 0 < record.lost <= 2 * record.evictions * (STOP_SECONDS + record.job.saving.startup)


def test_a_job_that_never_saves_begins_anew_whenever_a_machine_is_taken_away() -> None:
    cluster = replace(Cluster.of(1), spot=Spot(mean=800.0, seed=2))
    never = Saving(on_notice=False)
    (record,) = replay([TraceJob(0, 1000.0, 1, saving=never)], fifo, cluster)
    assert record.is_done
    assert record.evictions > 0
    assert record.lost == pytest.approx(sum(span.end - span.begin for span in record.spans) - 1000.0)


def test_all_policies_have_the_same_luck() -> None:
    jobs = [TraceJob(0, 400.0, 1), TraceJob(0, 900.0, 2), TraceJob(5, 300.0, 1)]
    cluster = replace(Cluster.of(4), spot=Spot(mean=500.0))
    found = [replay(jobs, policy_of(name, cluster), cluster) for name in (PolicyName.FIFO, PolicyName.EASY)]
    assert found[0] == found[1]
    assert sum(record.evictions for record in found[0]) > 0


def test_a_larger_group_loses_a_machine_sooner() -> None:
    spot = Spot(mean=3600.0)
    after = {count: sum(spot.first_of(job, 1, count) for job in range(2000)) / 2000 for count in (1, 8)}
    assert after[1] == pytest.approx(3600.0, rel=0.1)
    assert after[8] == pytest.approx(450.0, rel=0.1)
