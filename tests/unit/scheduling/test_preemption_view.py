"""The planner's view of victims and claims. It follows from the stored jobs alone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.domain.progress import Progress, Saved
from job_tracker.scheduling.gangs import gang_of
from job_tracker.scheduling.model import GoingOn, Stake
from job_tracker.scheduling.preemption_view import PreemptionView
from job_tracker.scheduling.waiting import WaitingGangs
from tests.support.jobs import NOON, spec

AT = NOON.timestamp()


def queued(job_id: int, priority: int = 0) -> Job:
    return new_job(job_id, spec(priority=priority), NOON)


def running(job_id: int) -> Job:
    return queued(job_id).admitted(NOON).running(NOON + timedelta(seconds=3))


def gives_way(job: Job, by: int, *, trainers: int = 0, by_attempt: int = 0, flavor: str = "") -> Job:
    why = Preemption(
        by_job=by, why=PreemptionReason.PRIORITY, trainers=trainers, by_attempt=by_attempt, flavor=flavor
    )
    return job.preempted(why, NOON)


def back(job: Job) -> Job:
    assert job.ending is not None
    return job.ended(job.ending, NOON)


def waiting(*jobs: Job) -> WaitingGangs:
    return WaitingGangs(gang_of(job.id, job.spec, None) for job in jobs)


def view_of(*jobs: Job) -> PreemptionView:
    view = PreemptionView()
    for job in jobs:
        view.read(job)
    return view


def test_a_running_job_loses_what_it_did_since_its_last_checkpoint() -> None:
    job = running(1)
    view = view_of(job)
    assert view.stakes == {1: Stake(attempt=1, saved_at=AT, startup=3.0)}
    saved = Progress(
        step=9, first_step_at=NOON + timedelta(seconds=8), saved=Saved(9, NOON + timedelta(seconds=50))
    )
    view.observe(replace(job, progress=saved))
    assert view.stakes == {1: Stake(attempt=1, saved_at=AT + 50, startup=8.0)}
    view.shift(3600.0)
    assert view.stakes[1].saved_at == AT + 3650


@pytest.mark.parametrize("by", [7200.0, -1800.0])
def test_after_the_clock_was_set_what_was_stored_before_is_read_as_moved(by: float) -> None:
    def saved_after(seconds: float) -> Progress:
        return Progress(step=9, saved=Saved(9, NOON + timedelta(seconds=seconds)))

    never, saves = running(1), replace(running(2), progress=saved_after(50))
    view = view_of(never, saves)
    for _ in range(2):
        view.shift(by / 2)
        for job in (never, saves):
            view.observe(job)
    assert [view.stakes[job_id].saved_at for job_id in (1, 2)] == [AT + by, AT + 50 + by]
    view.observe(replace(saves, progress=saved_after(90)))
    assert view.stakes[2].saved_at == AT + 90, "the time of a later checkpoint is that of the new clock"
    stop = Preemption(by_job=7, why=PreemptionReason.PRIORITY)
    stopping = never.preempted(stop, NOON + timedelta(seconds=95))
    view.observe(stopping)
    view.shift(60.0)
    view.observe(stopping)
    assert (view.stakes[1].saved_at, view.stakes[1].noticed_at) == (AT + 60 + by, AT + 155)


def test_an_older_version_of_a_job_changes_nothing() -> None:
    job = running(1)
    view = view_of(replace(gives_way(job, 2), version=5))
    view.observe(replace(job, version=4))
    assert view.stakes[1].is_leaving
    view.observe(replace(job, version=6))
    assert not view.stakes[1].is_leaving


def test_a_job_that_ends_for_any_reason_is_leaving_but_for_nobody() -> None:
    cancelled = running(1).decided(Ending(JobState.CANCELLED, NOON))
    stake = view_of(cancelled).stakes[1]
    assert (stake.is_leaving, stake.leaves_for) == (True, None)


def test_a_claim_lasts_from_the_decision_until_the_job_starts() -> None:
    preemptor, victim = queued(2), gives_way(running(1), 2)
    view = view_of(preemptor, victim)
    assert view.claims(waiting(preemptor)) == [2]
    view.read(back(victim))
    assert (view.claims(waiting(preemptor, victim)), dict(view.stakes)) == ([2], {})
    assert view.preempted == {1}
    view.read(preemptor.admitted(NOON))
    assert view.claims(waiting(victim)) == []


def test_a_job_that_waits_again_after_its_own_attempt_has_no_claim_left() -> None:
    victim = back(gives_way(running(1), 2))
    again = running(2).ended(Ending(JobState.BACKOFF, NOON), NOON).queued_again(NOON)
    assert view_of(victim, again).claims(waiting(victim, again)) == []
    later = back(gives_way(running(1), 2, by_attempt=1))
    assert view_of(later, again).claims(waiting(later, again)) == [2]


def test_the_highest_priority_claims_first_and_smaller_groups_last() -> None:
    low, high = queued(7), queued(8, priority=100)
    smaller, other = back(gives_way(running(1), 7, trainers=2)), back(gives_way(running(2), 8))
    assert view_of(low, high, smaller, other).claims(waiting(low, high, smaller, other)) == [8, 7, 1]


def test_a_job_that_goes_on_in_another_size_keeps_it_until_it_runs_again() -> None:
    smaller = gives_way(running(1), 7, trainers=2, flavor="a100")
    view = view_of(smaller, queued(7))
    stake = view.stakes[1]
    assert (stake.goes_on, stake.noticed_at) == (2, AT)
    view.shift(3600.0)
    assert view.stakes[1].noticed_at == AT + 3600
    view.read(back(smaller))
    assert view.going_on(waiting(smaller, queued(7))) == {1: GoingOn(2, "a100")}
    view.read(queued(7).admitted(NOON))
    assert view.going_on(waiting(smaller)) == {1: GoingOn(2, "a100")}
    view.read(back(smaller).admitted(NOON))
    assert view.going_on(waiting()) == {}


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.SUCCEEDED, JobState.FAILED])
def test_a_claim_lasts_although_the_victim_ends_during_its_notice(state: JobState) -> None:
    preemptor, others = queued(2), gives_way(running(1), 2, trainers=2).decided(Ending(state, NOON))
    for view in (view_of(preemptor, gives_way(running(1), 2), others), view_of(preemptor, others)):
        assert view.claims(waiting(preemptor)) == [2], "a new leader finds it, too"
        stake = view.stakes[1]
        assert (stake.is_leaving, stake.leaves_for, stake.goes_on) == (True, 2, 0)
        view.read(back(others))
        assert (view.claims(waiting(preemptor)), dict(view.stakes)) == ([2], {})
        view.read(preemptor.admitted(NOON))
        assert view.claims(waiting()) == []
        again = running(2).ended(Ending(JobState.BACKOFF, NOON), NOON).queued_again(NOON)
        view.read(again)
        assert view.claims(waiting(again)) == [], "it has had its attempt"


def test_a_noted_claim_counts_only_if_the_victim_does_not_run() -> None:
    preemptor = queued(2)
    view = view_of(preemptor, running(1))
    view.note({1: (2, 0), 3: (9, 0)})
    assert view.claims(waiting(preemptor)) == [], "job 1 runs again, and job 9 no longer waits"
    view.note({4: (2, 1)})
    assert view.claims(waiting(preemptor)) == [], "job 2 has made no attempt"
    view.note({5: (2, 0)})
    assert view.claims(waiting(preemptor)) == [2]
    assert view.claims_to_note(waiting(preemptor)) == {5: (2, 0)}
    view.read(running(5))
    assert view.claims(waiting(preemptor)) == [], "the job that was stopped runs again"


def test_a_victim_that_waits_again_after_a_failure_of_its_own_does_not_go_on_at_once() -> None:
    preemptor, victim = queued(2), gives_way(running(1), 2, trainers=2)
    failed = back(victim.decided(Ending(JobState.BACKOFF, NOON)))
    view = view_of(preemptor, victim, failed)
    again = failed.queued_again(NOON)
    view.read(again)
    assert view.claims(waiting(preemptor, again)) == [2]
    assert view.going_on(waiting(preemptor, again)) == {}


def test_a_job_that_was_to_grow_and_is_cancelled_leaves_for_no_other() -> None:
    stop = Preemption(by_job=0, why=PreemptionReason.GROW, trainers=4)
    cancelled = running(1).preempted(stop, NOON).decided(Ending(JobState.CANCELLED, NOON))
    stake = view_of(cancelled).stakes[1]
    assert (stake.is_leaving, stake.leaves_for, stake.goes_on) == (True, None, 0)


def test_a_removed_job_leaves_only_the_claim_of_the_job_for_which_it_was_stopped() -> None:
    victim, preemptor = back(gives_way(running(1), 2)), queued(2)
    view = view_of(victim, preemptor)
    view.remove(1)
    assert (view.claims(waiting(preemptor)), view.preempted) == ([2], set())
    view.remove(2)
    assert view.claims(waiting()) == []
    view.clear()
    assert view.stakes == {}
