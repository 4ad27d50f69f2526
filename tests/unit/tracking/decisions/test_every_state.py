"""Decisions in every state, for every possible observation."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import IllegalMove
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import TRANSITIONS, Ending, Job, JobState, new_job
from job_tracker.domain.policies import Deadlines, RetryPolicy
from job_tracker.tracking.decisions import Launch, Rest, Save, Stop
from tests.support.decisions import WHY, F, P, R, S, X, seen, step
from tests.support.jobs import NOON, failures, job, job_of, spec

LAUNCHING, RUNNING = job(instances=2), job(instances=2, state=JobState.RUNNING)


@pytest.mark.parametrize("observation", [None, seen(P, P), seen(R, R), seen(R, F)])
def test_a_tracker_launches_if_no_launch_is_known(observation: Observation | None) -> None:
    assert step(LAUNCHING, observation, launched=False) == Launch()


@pytest.mark.parametrize("phases", [(P, P), (R, P), (S, R)])
def test_a_group_with_a_complete_launch_is_never_launched_again(phases: tuple[Phase, ...]) -> None:
    launched = LAUNCHING.observed(seen(*phases).statuses)
    gone = step(launched, None, launched=False)
    assert isinstance(gone, Save)
    assert gone.job.diagnosis is not None
    assert (gone.job.diagnosis.category, gone.job.diagnosis.retryable) == (Category.GROUP_VANISHED, True)
    assert step(launched, seen(F, P), launched=False) == step(launched, seen(F, P), launched=True)
    again = launched.ended(Ending(JobState.BACKOFF, NOON), NOON).queued_again(NOON).admitted(NOON)
    assert step(again, None, launched=False) == Launch()


@pytest.mark.parametrize("current", [LAUNCHING, RUNNING])
@pytest.mark.parametrize("observation", [None, seen(X, R), seen(R, X)])
def test_a_group_that_is_gone_fails_the_job(current: Job, observation: Observation | None) -> None:
    decided = step(current, observation)
    assert isinstance(decided, Save)
    assert decided.job.diagnosis is not None
    assert decided.job.diagnosis.category is Category.GROUP_VANISHED


@pytest.mark.parametrize("current", [LAUNCHING, RUNNING])
@pytest.mark.parametrize("observation", [seen(R, F), seen(S, F), seen(F, F), seen(P, F)])
def test_the_failure_of_any_rank_decides_the_ending(current: Job, observation: Observation) -> None:
    decided = step(current, observation)
    expected = current.observed(observation.statuses).decided(Ending(JobState.FAILED, NOON, WHY))
    assert decided == Save(expected)


@pytest.mark.parametrize("observation", [seen(R, P), seen(R, R), seen(S, R)])
def test_a_job_is_running_once_its_master_runs(observation: Observation) -> None:
    assert step(LAUNCHING, observation) == Save(LAUNCHING.observed(observation.statuses).running(NOON))


def test_a_pending_master_keeps_the_job_launching() -> None:
    pending = LAUNCHING.observed(seen(P, R).statuses)
    assert step(LAUNCHING, seen(P, R)) == Save(pending)
    assert step(pending, seen(P, R)) == Rest()


def test_the_success_of_the_master_decides_the_ending() -> None:
    expected = RUNNING.observed(seen(S, R).statuses).decided(Ending(JobState.SUCCEEDED, NOON))
    assert step(RUNNING, seen(S, R)) == Save(expected)


def test_a_stall_decides_the_failure_of_a_running_attempt_only() -> None:
    why = Diagnosis(category=Category.STALLED, summary="It stands still.", resolution="Look.", retryable=True)
    stalled = step(RUNNING, seen(R, R), stall=why)
    assert stalled == Save(RUNNING.observed(seen(R, R).statuses).decided(Ending(JobState.FAILED, NOON, why)))
    assert step(RUNNING, seen(R, F), stall=why) == step(RUNNING, seen(R, F))
    assert step(RUNNING, seen(S, R), stall=why) == step(RUNNING, seen(S, R))
    assert step(LAUNCHING, seen(P, R), stall=why) == step(LAUNCHING, seen(P, R))


def test_workers_get_time_to_end_only_after_a_success() -> None:
    running = RUNNING.observed(seen(S, R).statuses)
    succeeded = running.decided(ending := Ending(JobState.SUCCEEDED, NOON))
    assert step(succeeded, seen(S, R), after=10) == Rest(at_most=timedelta(seconds=20))
    assert step(succeeded, seen(S, R), after=30) == Stop(ending)
    assert step(succeeded.observed(seen(S, S).statuses), seen(S, S), after=10) == Stop(ending)
    assert step(succeeded, None) == Stop(ending)
    for state in (JobState.FAILED, JobState.CANCELLED):
        ending = Ending(state, NOON)
        assert step(running.decided(ending), seen(S, R)) == Stop(ending)


def test_a_worker_that_fails_while_it_has_time_to_end_fails_the_attempt() -> None:
    succeeded = RUNNING.observed(seen(S, R).statuses).decided(Ending(JobState.SUCCEEDED, NOON))
    failed = step(succeeded, seen(S, F), after=5)
    assert isinstance(failed, Save)
    assert failed.job.ending == Ending(JobState.FAILED, NOON + timedelta(seconds=5), WHY)
    assert failed.job.ranks[1].phase is F
    assert step(failed.job, seen(S, F), after=5) == Stop(failed.job.ending)
    # Later, it may have failed because the service has stopped it.
    stopped = succeeded.observed(seen(S, F).statuses)
    assert step(stopped, seen(S, F), after=31) == Stop(Ending(JobState.SUCCEEDED, NOON))


def test_whether_the_worker_or_the_master_is_seen_to_end_first_makes_no_difference() -> None:
    policy = replace(POLICY, retry_on=(Category.CRASHED,))
    running = job_of(spec(instances=2, retry=policy), state=JobState.RUNNING).observed(seen(R, R).statuses)
    ends = set()
    for before in (seen(R, F), seen(S, F), seen(S, R)):
        decided = step(running, before)
        assert isinstance(decided, Save)
        later = step(decided.job, seen(S, F))
        after = later.job if isinstance(later, Save) else decided.job
        assert after.ending is not None
        ends.add((after.ending.state, after.ending.diagnosis))
    assert ends == {(JobState.BACKOFF, WHY)}


def test_a_master_that_needs_its_servers_no_longer_succeeds_although_one_has_failed() -> None:
    serving = job_of(spec(instances=2, ends_with_master=True), state=JobState.RUNNING)
    for observation in (seen(S, F), seen(S, R)):
        decided = step(serving, observation)
        assert isinstance(decided, Save)
        assert decided.job.ending == Ending(JobState.SUCCEEDED, NOON, at_once=True)
        assert step(decided.job.observed(seen(S, F).statuses), seen(S, F)) == Stop(decided.job.ending)
    failed = step(serving, seen(R, F))
    assert isinstance(failed, Save)
    assert failed.job.diagnosis == WHY


def test_the_ends_of_ranks_are_written_before_the_group_is_stopped() -> None:
    decided = RUNNING.observed(seen(S, R).statuses).decided(ending := Ending(JobState.SUCCEEDED, NOON))
    known = decided.observed(seen(S, S).statuses)
    assert step(decided, seen(S, S)) == Save(known)
    assert step(known, seen(S, S)) == Stop(ending)


def test_a_known_end_stays_when_a_later_service_observes_the_rank_as_stopped() -> None:
    decided = RUNNING.observed(seen(S, S).statuses).decided(ending := Ending(JobState.SUCCEEDED, NOON))
    assert step(decided, seen(S, X)) == Stop(ending)
    assert decided.observed(seen(S, X).statuses) == decided


@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_a_job_refuses_every_move_that_is_not_in_the_table(source: JobState, target: JobState) -> None:
    current, ending = job(state=source), Ending(target, NOON, WHY)
    if target in TRANSITIONS[source]:
        assert current.ended(ending, NOON).state is target
    else:
        with pytest.raises(IllegalMove):
            current.ended(ending, NOON)


def test_a_decision_is_not_taken_twice() -> None:
    decided = RUNNING.decided(Ending(JobState.SUCCEEDED, NOON))
    with pytest.raises(IllegalMove):
        decided.decided(Ending(JobState.CANCELLED, NOON))


POLICY = RetryPolicy(max_attempts=2, backoff=timedelta(seconds=10))
DEADLINES = Deadlines(queue=timedelta(seconds=5), start=timedelta(seconds=60), run=timedelta(hours=1))
LOST = Diagnosis(category=Category.NODE_LOST, summary="Lost.", resolution="Wait.", retryable=True, rank=0)


def lost(*phases: Phase) -> Observation:
    return Observation(
        tuple(RankObservation(RankStatus(n, p), LOST if p is F else None) for n, p in enumerate(phases))
    )


@pytest.mark.parametrize("state", [JobState.LAUNCHING, JobState.RUNNING])
def test_a_retryable_failure_leads_to_another_attempt(state: JobState) -> None:
    current = job_of(spec(instances=2, retry=POLICY), state=state)
    decided = step(current, lost(R, F))
    assert isinstance(decided, Save)
    assert decided.job.ending == Ending(JobState.BACKOFF, NOON, LOST)
    assert step(decided.job, lost(R, F)) == Stop(decided.job.ending)
    # A crash is not retryable, and the last attempt is not followed by another.
    for hopeless, observation in ((current, seen(R, F)), (replace(current, attempt=2), lost(R, F))):
        decided = step(hopeless, observation)
        assert isinstance(decided, Save)
        assert decided.job.ending is not None
        assert decided.job.ending.state is JobState.FAILED


def test_a_policy_may_name_categories_to_retry() -> None:
    policy = replace(POLICY, retry_on=(Category.CRASHED,))
    decided = step(job_of(spec(instances=2, retry=policy)), seen(R, F))
    assert isinstance(decided, Save)
    assert decided.job.ending == Ending(JobState.BACKOFF, NOON, WHY)


def test_a_job_is_queued_again_after_its_back_off() -> None:
    waiting = job_of(spec(retry=POLICY)).ended(Ending(JobState.BACKOFF, NOON, LOST), NOON)
    assert step(waiting, None, after=9.9) == Rest()
    assert step(waiting, None, after=10) == Save(waiting.queued_again(NOON + timedelta(seconds=10)))


def test_a_clock_that_was_set_back_does_not_extend_waits() -> None:
    back, pause = timedelta(hours=-2), timedelta(seconds=10)
    waiting = job_of(spec(retry=POLICY)).ended(Ending(JobState.BACKOFF, NOON, LOST), NOON)
    assert step(waiting, None, after=-7200) == Save(replace(waiting, due_at=NOON + back + pause))
    queued = new_job(1, spec(deadlines=DEADLINES), NOON)
    launching = queued.admitted(NOON).observed(seen(P).statuses)
    running = launching.observed(seen(R).statuses).running(NOON)
    for current, observed, deadline in (
        (queued, None, DEADLINES.queue),
        (launching, seen(P), DEADLINES.start),
        (running, seen(R), DEADLINES.run),
    ):
        assert deadline is not None
        bounded = replace(current, due_at=NOON + back + deadline)
        assert step(current, observed, after=-7200) == Save(bounded)
        assert step(bounded, observed, after=-7200) == Rest()


def test_a_job_that_is_queued_too_long_fails_without_a_group() -> None:
    queued = replace(new_job(1, spec(deadlines=DEADLINES), NOON), attempt=0)
    assert step(queued, None, after=4.9) == Rest()
    decided = step(queued, None, after=5)
    assert isinstance(decided, Save)
    assert (decided.job.state, decided.job.finished_at) == (JobState.FAILED, NOON + timedelta(seconds=5))
    assert decided.job.diagnosis is not None
    assert decided.job.diagnosis.category is Category.QUEUED_TOO_LONG
    assert "0:00:05" in decided.job.diagnosis.summary


def test_a_launch_that_takes_too_long_fails_with_what_it_waited_for() -> None:
    launching = new_job(1, spec(deadlines=DEADLINES), NOON).admitted(NOON)
    ranks = (RankObservation(RankStatus(0, P, note="no node has a GPU")),)
    waiting = launching.observed(Observation(ranks).statuses)
    assert step(waiting, Observation(ranks), after=59.9) == Rest()
    decided = step(waiting, Observation(ranks), after=60)
    assert isinstance(decided, Save)
    assert decided.job.diagnosis is not None
    assert decided.job.diagnosis.category is Category.NEVER_STARTED
    assert decided.job.diagnosis.detail == "Rank 0: no node has a GPU."


def test_an_attempt_that_runs_too_long_fails() -> None:
    launching = new_job(1, spec(deadlines=DEADLINES), NOON).admitted(NOON)
    running = launching.observed(seen(R).statuses).running(NOON)
    assert step(running, seen(R), after=3599) == Rest()
    decided = step(running, seen(R), after=3600)
    assert isinstance(decided, Save)
    assert decided.job.diagnosis is not None
    assert decided.job.diagnosis.category is Category.DEADLINE_EXCEEDED
    # An attempt that has succeeded just in time counts.
    assert step(running, seen(S), after=3600) == Save(
        running.observed(seen(S).statuses).decided(Ending(JobState.SUCCEEDED, NOON + timedelta(hours=1)))
    )


def test_a_cancel_overrules_another_attempt_and_keeps_the_failure_of_the_last() -> None:
    failing = job_of(spec(retry=POLICY), state=JobState.RUNNING).failed(LOST, NOON)
    cancelled = failing.decided(Ending(JobState.CANCELLED, NOON, at_once=True))
    assert cancelled.ending == Ending(JobState.CANCELLED, NOON, at_once=True)
    assert failures(cancelled) == [(1, LOST)]


def test_the_back_off_doubles_up_to_its_maximum() -> None:
    policy = RetryPolicy(max_attempts=100, backoff=timedelta(seconds=10), max_backoff=timedelta(minutes=1))
    assert [policy.delay_after(n).total_seconds() for n in (1, 2, 3, 4, 99)] == [10, 20, 40, 60, 60]


def ended_one_after_the_other(*ends: tuple[Diagnosis | None, float]) -> Observation:
    """Return ranks that failed at these seconds after noon; a rank without diagnosis still runs."""
    return Observation(
        tuple(
            RankObservation(RankStatus(n, F if why else R), why, NOON.timestamp() + at if why else None)
            for n, (why, at) in enumerate(ends)
        )
    )


def test_a_rank_that_crashes_after_losing_a_peer_is_not_the_root_cause() -> None:
    for ends in (((WHY, 0.0), (LOST, 0.3)), ((LOST, 0.3), (WHY, 0.0)), ((LOST, 0.0), (WHY, 0.3))):
        assert ended_one_after_the_other(*ends).first_failure == LOST
    assert ended_one_after_the_other((WHY, 0.0), (LOST, 60.0)).first_failure == WHY


GLOO = "RuntimeError: [enforce fail at pair.cc:534] Connection closed by peer [127.0.0.1]:40042"
JOINING = (
    "GroupError: process 0 of 2 could not join its group: Timed out after 61 seconds waiting for clients."
)


def left_and_failed(detail: str, *, left_at: float = 0.0, failed_at: float = 0.2) -> Diagnosis:
    """Return the root cause in a group whose rank 1 exited with code 0 and whose rank 0 crashed."""
    why = Diagnosis(category=Category.CRASHED, summary="Rank 0 exited with 1.", resolution="", detail=detail)
    noon = NOON.timestamp()
    left = RankObservation(RankStatus(1, S, 0), None, noon + left_at, "no more data")
    cause = Observation(
        (RankObservation(RankStatus(0, F, 1), replace(why, rank=0), noon + failed_at), left)
    ).first_failure
    assert cause is not None
    return cause


@pytest.mark.parametrize("detail", [GLOO, JOINING])
@pytest.mark.parametrize("failed_at", [0.2, 600.0])
def test_a_rank_that_left_early_is_the_root_cause_not_the_peer_that_failed_without_it(
    detail: str, failed_at: float
) -> None:
    cause = left_and_failed(detail, failed_at=failed_at)
    assert (cause.rank, cause.category) == (1, Category.CRASHED)
    assert cause.summary.startswith("Rank 1 left with exit code 0 before the others had finished, and rank 0")
    assert detail in cause.detail
    assert cause.detail.endswith("no more data")


def test_a_rank_that_fails_by_itself_is_the_root_cause_although_another_has_finished() -> None:
    assert left_and_failed("OSError: No space left on device").rank == 0
    output = "all have passed the barrier, and no peer is missing\nTraceback (most recent call last):\n"
    assert left_and_failed(f"{output}OSError: No space left on device").rank == 0
    assert left_and_failed(GLOO, left_at=0.3).rank == 0  # it left later, when the group was already failing


def test_a_crash_counts_as_the_root_cause_only_after_a_moment() -> None:
    current = job_of(spec(instances=2, retry=POLICY), state=JobState.RUNNING)
    crashed = ended_one_after_the_other((WHY, 0.0), (None, 0.0))
    assert step(current, crashed, after=0.4) == Rest(at_most=timedelta(seconds=0.6))
    decided = step(current, crashed, after=1)
    assert isinstance(decided, Save)
    assert decided.job.diagnosis == WHY
    # No wait if the clock was set back, or if all ranks have ended.
    assert isinstance(step(current, crashed, after=-5), Save)
    assert isinstance(step(current, ended_one_after_the_other((WHY, 0.0), (WHY, 0.1)), after=0.2), Save)
    assert isinstance(step(current, ended_one_after_the_other((LOST, 0.0), (None, 0.0)), after=0.1), Save)
