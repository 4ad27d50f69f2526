"""Attempts that are stopped for other jobs: the decision, the notice, and the way back to the queue."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.errors import IllegalMove
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason
from job_tracker.domain.policies import Deadlines, RetryPolicy
from job_tracker.domain.progress import Progress
from job_tracker.tracking.decisions import Save, Stop, ended_by_itself
from tests.support.decisions import WHY, F, P, R, S, X, seen, step
from tests.support.jobs import NOON, job_of, spec

FOR_NINE = Preemption(by_job=9, why=PreemptionReason.PRIORITY, by_project="default")
CANCELLED = JobState.CANCELLED
WANTED = spec(instances=2, retry=RetryPolicy(max_attempts=2, backoff=timedelta(seconds=7)))
RUNNING = job_of(WANTED, state=JobState.RUNNING).observed(seen(R, R).statuses)
LAUNCHING = job_of(WANTED)
STATES = pytest.mark.parametrize("current", [LAUNCHING, RUNNING], ids=["launching", "running"])


def preempted(current: Job = RUNNING) -> Job:
    return current.preempted(FOR_NINE, NOON)


def back(current: Job = RUNNING, after: float = 5) -> Job:
    """Return the job after its preemption."""
    ending = preempted(current).ending
    assert ending is not None
    return preempted(current).ended(ending, NOON + timedelta(seconds=after))


@STATES
def test_the_decision_is_written_before_the_stop_and_leads_back_to_the_queue(current: Job) -> None:
    decided = preempted(current)
    assert (decided.state, decided.due_at) == (current.state, None)
    assert step(decided, None) == Stop(Ending(JobState.QUEUED, NOON, preemption=FOR_NINE))
    again = back(current)
    assert (again.state, again.id, again.ending, again.allocation) == (JobState.QUEUED, 1, None, None)
    assert again.submitted_at == current.submitted_at
    assert again.history[-1].preemption == FOR_NINE
    assert (again.history[-1].attempt, again.preemptions, again.preemption) == (1, 1, FOR_NINE)


def test_a_preempted_attempt_counts_neither_as_a_failure_nor_against_the_attempts() -> None:
    second = back().admitted(NOON)
    assert (second.attempt, second.preemption, second.preemptions) == (2, None, 1)
    assert (second.max_attempts, second.last_failure) == (3, None)
    failed = second.failure(replace(WHY, retryable=True), NOON)
    assert failed.state is JobState.BACKOFF, "this is its first attempt that failed, of two"
    waiting = second.decided(failed).ended(failed, NOON)
    assert waiting.due_at == NOON + timedelta(seconds=7), "the first pause"
    third = waiting.queued_again(NOON).admitted(NOON)
    assert third.failure(replace(WHY, retryable=True), NOON).state is JobState.FAILED


@pytest.mark.parametrize("why", PreemptionReason)
def test_a_change_of_size_is_no_preemption_for_whatever_reason(why: PreemptionReason) -> None:
    stop = Ending(JobState.QUEUED, NOON, preemption=Preemption(by_job=9, why=why, trainers=1))
    again = RUNNING.decided(stop).ended(stop, NOON)
    assert (again.preemptions, again.max_attempts) == (0, 3)


def test_the_deadline_of_the_queue_begins_again() -> None:
    bounded = replace(RUNNING, spec=replace(WANTED, deadlines=Deadlines(queue=timedelta(seconds=60))))
    assert back(bounded).due_at == NOON + timedelta(seconds=65)


def test_a_job_that_waits_or_ends_is_not_preempted() -> None:
    with pytest.raises(IllegalMove):
        back().preempted(FOR_NINE, NOON)
    with pytest.raises(IllegalMove):
        preempted().preempted(FOR_NINE, NOON)
    with pytest.raises(IllegalMove):
        RUNNING.failed(WHY, NOON).preempted(FOR_NINE, NOON)


def test_a_cancel_wins_over_a_preemption() -> None:
    cancelled = preempted().decided(Ending(CANCELLED, NOON))
    assert cancelled.ending is not None
    final = cancelled.ended(cancelled.ending, NOON)
    assert (final.state, final.preemptions, final.preemption, final.interrupted) == (CANCELLED, 0, None, "")


def test_another_ending_keeps_for_whom_the_attempt_was_stopped() -> None:
    """A new leader, too, keeps what becomes free for that job."""
    succeeded = preempted().decided(Ending(JobState.SUCCEEDED, NOON))
    for ending in (
        succeeded.ending,
        succeeded.failed(WHY, NOON).ending,
        preempted().failed(WHY, NOON).ending,
    ):
        assert ending is not None
        assert (ending.preemption, ending.sentence("default")) == (FOR_NINE, "")
    again = replace(RUNNING, spec=replace(WANTED, retry=RetryPolicy(max_attempts=9)))
    failed = preempted(again).failed(replace(WHY, retryable=True), NOON)
    cancelled = failed.decided(Ending(CANCELLED, NOON))
    assert cancelled.ending == Ending(CANCELLED, NOON, preemption=FOR_NINE)
    assert failed.ending is not None
    assert failed.ended(failed.ending, NOON).queued_again(NOON).preemption is None


def test_a_success_before_the_notice_counts() -> None:
    observation = seen(S, R)
    decided = step(preempted(), observation)
    expected = preempted().observed(observation.statuses).decided(Ending(JobState.SUCCEEDED, NOON))
    assert decided == Save(expected)


def test_a_success_is_found_although_the_job_was_still_launching() -> None:
    decided = step(preempted(LAUNCHING), seen(S, S))
    assert isinstance(decided, Save)
    assert decided.job.state is JobState.RUNNING
    again = step(decided.job, seen(S, S))
    assert isinstance(again, Save)
    assert again.job.ending is not None
    assert again.job.ending.state is JobState.SUCCEEDED


def test_an_exit_without_error_in_the_notice_is_a_success_only_after_all_steps() -> None:
    statuses = [RankStatus(0, X, 0), RankStatus(1, X, 143)]
    seen_end = Observation(tuple(RankObservation(status) for status in statuses))
    assert ended_by_itself(preempted(), seen_end, NOON) is None
    done = replace(preempted(), progress=Progress(step=8, total_steps=8))
    ended = ended_by_itself(done, seen_end, NOON)
    assert ended is not None
    assert ended.ending is not None
    assert ended.ending.state is JobState.SUCCEEDED


def failed_at(seconds: float) -> Observation:
    at = NOON.timestamp() + seconds
    failed = RankObservation(RankStatus(1, F, 1), WHY, at)
    return Observation((RankObservation(RankStatus(0, Phase.RUNNING)), failed))


def test_a_failure_before_the_decision_is_a_failure() -> None:
    decided = step(preempted(), failed_at(-2))
    assert isinstance(decided, Save)
    assert decided.job.ending == Ending(JobState.FAILED, NOON, WHY, preemption=FOR_NINE)


def test_a_failure_after_the_decision_is_a_consequence_of_the_notice() -> None:
    """For example a rank whose peer has left, or whose disk was full when it saved."""
    assert ended_by_itself(preempted(), failed_at(1), NOON) is None


def test_a_group_that_was_stopped_has_not_ended_by_itself() -> None:
    assert ended_by_itself(preempted(), seen(X, X), NOON) is None
    assert ended_by_itself(preempted(LAUNCHING), seen(P, P), NOON) is None
    assert ended_by_itself(RUNNING, seen(S, S), NOON) is None, "it is not preempted"


@pytest.mark.parametrize(
    ("why", "project", "trainers", "sentence"),
    [
        (PreemptionReason.PRIORITY, "a", 0, "Preempted: job 9 has a higher priority."),
        (PreemptionReason.PRIORITY, "b", 0, "Preempted: another job has a higher priority."),
        (
            PreemptionReason.RECLAIM,
            "a",
            2,
            "Made smaller: the queue of job 9 takes back its guaranteed quota.",
        ),
    ],
)
def test_the_sentence_names_no_job_of_another_project(
    why: PreemptionReason, project: str, trainers: int, sentence: str
) -> None:
    preemption = Preemption(by_job=9, why=why, by_project="a", trainers=trainers)
    assert preemption.sentence(project) == sentence
