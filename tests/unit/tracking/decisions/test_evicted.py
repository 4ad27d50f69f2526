"""Attempts that others stop with notice, such as the drain of a node: they lead back to the queue."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import MOST_EVICTIONS, Ending, Job, JobState
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.domain.progress import Progress
from job_tracker.scheduling.experience import run_times
from job_tracker.tracking.decisions import Save, Stop, ended_by_itself
from tests.support.decisions import WHY, F, P, R, S, X, seen, step
from tests.support.jobs import NOON, job_of, spec

DRAIN = Eviction(why=EvictionReason.DRAINED, at=NOON - timedelta(seconds=1), rank=1, machine="node-3")
WANTED = spec(instances=2, retry=RetryPolicy(max_attempts=2, backoff=timedelta(seconds=7)))
RUNNING = job_of(WANTED, state=JobState.RUNNING).observed(seen(R, R).statuses)
LAUNCHING = job_of(WANTED)
BEFORE, AFTER = DRAIN.at.timestamp() - 0.1, DRAIN.at.timestamp()


def noticed(*phases: Phase, rank: int = 1, exit_code: int | None = None) -> Observation:
    """Return an observation in which one rank has got notice."""
    ranks = list(seen(*phases).ranks)
    status = replace(ranks[rank].status, exit_code=exit_code)
    ranks[rank] = RankObservation(status, eviction=replace(DRAIN, rank=rank))
    return Observation(tuple(ranks))


def failing(rank: int, at: float | None) -> Observation:
    """Return an observation in which rank 1 has got notice, and this one has failed."""
    ranks = list(noticed(R, R).ranks)
    failed = RankObservation(RankStatus(rank, Phase.FAILED, 143), replace(WHY, rank=rank), at)
    return Observation((*ranks[:rank], failed, *ranks[rank + 1 :]))


def evicted(current: Job = RUNNING) -> Job:
    found = step(current, noticed(R, R))
    assert isinstance(found, Save)
    return found.job


def back(current: Job = RUNNING) -> Job:
    """Return the job after its eviction."""
    decided = evicted(current)
    assert decided.ending is not None
    return decided.ended(decided.ending, NOON + timedelta(seconds=5))


@pytest.mark.parametrize("current", [LAUNCHING, RUNNING], ids=["launching", "running"])
@pytest.mark.parametrize("phase", [P, R, X], ids=str)
def test_when_one_rank_gets_notice_the_whole_group_is_stopped_and_the_job_waits_again(
    current: Job, phase: Phase
) -> None:
    found = step(current, noticed(R, phase), launched=False)
    assert isinstance(found, Save)
    ending = Ending(JobState.QUEUED, NOON, eviction=DRAIN)
    assert (found.job.state, found.job.ending) == (current.state, ending)
    assert step(found.job, noticed(R, phase)) == Stop(ending)
    again = found.job.ended(ending, NOON + timedelta(seconds=5))
    assert (again.state, again.submitted_at) == (JobState.QUEUED, current.submitted_at)
    assert (again.history[-1].eviction, again.evictions, again.preemptions) == (DRAIN, 1, 0)


def test_an_elastic_group_is_stopped_as_a_whole_too() -> None:
    """The evicted rank then has time to save with the others."""
    elastic = replace(WANTED, group=replace(WANTED.group, elastic=Elastic(min_instances=1)))
    assert step(replace(RUNNING, spec=elastic), noticed(R, X)) == Save(
        replace(RUNNING, spec=elastic).observed(noticed(R, X).statuses).evicted(DRAIN, NOON)
    )


def test_an_evicted_attempt_counts_neither_as_a_failure_nor_against_the_attempts() -> None:
    second = back().admitted(NOON)
    assert (second.attempt, second.max_attempts, second.last_failure) == (2, 3, None)
    failed = second.failure(replace(WHY, retryable=True), NOON)
    assert failed.state is JobState.BACKOFF, "this is its first attempt that failed, of two"
    waiting = second.decided(failed).ended(failed, NOON)
    assert waiting.due_at == NOON + timedelta(seconds=7), "the first pause"
    third = waiting.queued_again(NOON).admitted(NOON)
    assert third.failure(replace(WHY, retryable=True), NOON).state is JobState.FAILED


def test_the_history_says_who_stopped_the_attempt() -> None:
    sentence = "Evicted: rank 1 was evicted from node-3 through the API of the cluster."
    assert evicted().interrupted == sentence
    assert back().interrupted == sentence
    assert back().history[-1].sentence("any") == sentence
    assert back().admitted(NOON).interrupted == ""


@pytest.mark.parametrize("why", EvictionReason)
def test_every_reason_has_a_sentence_with_the_words_of_the_engine(why: EvictionReason) -> None:
    sentence = Eviction(why=why, at=NOON, rank=3, detail="it said so").sentence()
    assert sentence.startswith("Evicted: ")
    assert sentence.endswith(" (it said so).")
    assert "rank 3" in sentence


@pytest.mark.parametrize("at", [BEFORE, None], ids=["earlier", "unknown"])
def test_a_failure_before_the_notice_is_a_failure(at: float | None) -> None:
    """Without a time of notice, the rank was removed at once. So the cluster then deletes the others."""
    found = step(RUNNING, failing(0, at), after=10)
    assert isinstance(found, Save)
    assert found.job.diagnosis == replace(WHY, rank=0)
    assert ended_by_itself(evicted(), failing(0, at), NOON) is not None


def test_a_failure_after_the_notice_is_a_consequence() -> None:
    """After the notice, the other ranks save and leave, or they lose a peer."""
    found = step(RUNNING, failing(0, AFTER), after=10)
    assert isinstance(found, Save)
    assert found.job.interrupted
    assert ended_by_itself(evicted(), failing(0, AFTER), NOON) is None


def test_a_group_whose_master_has_succeeded_is_not_evicted() -> None:
    found = step(RUNNING, noticed(S, R))
    assert isinstance(found, Save)
    assert found.job.ending == Ending(JobState.SUCCEEDED, NOON)


def test_an_attempt_that_has_done_all_its_steps_during_the_notice_has_succeeded() -> None:
    done = replace(evicted(), progress=Progress(step=7, total_steps=7))
    found = ended_by_itself(done, noticed(X, R, rank=0, exit_code=0), NOON)
    assert found is not None
    assert found.ending == Ending(JobState.SUCCEEDED, NOON)
    unfinished = replace(done, progress=Progress(step=6, total_steps=7))
    assert ended_by_itself(unfinished, noticed(X, R, rank=0, exit_code=0), NOON) is None


def test_the_run_time_of_an_evicted_attempt_says_nothing_about_such_jobs() -> None:
    assert list(run_times(back(LAUNCHING.running(NOON)).history)) == []


def test_a_cancel_wins_over_an_eviction() -> None:
    cancelled = evicted().decided(Ending(JobState.CANCELLED, NOON))
    assert cancelled.ending is not None
    final = cancelled.ended(cancelled.ending, NOON)
    assert (final.state, final.evictions) == (JobState.CANCELLED, 0)


def test_a_notice_to_a_job_that_gives_way_changes_nothing() -> None:
    decided = RUNNING.failed(WHY, NOON)
    assert step(decided, noticed(R, R)) == Stop(Ending(JobState.FAILED, NOON, WHY))


def test_a_job_that_is_always_evicted_fails_some_time() -> None:
    current = RUNNING
    for _ in range(MOST_EVICTIONS):
        current = back(current).admitted(NOON).running(NOON).observed(seen(R, R).statuses)
    assert current.evictions == MOST_EVICTIONS
    found = evicted(current)
    assert found.ending is not None
    assert (found.ending.state, found.ending.eviction) == (JobState.BACKOFF, None)
    why = found.ending.diagnosis
    assert isinstance(why, Diagnosis)
    assert (why.category, why.rank) == (Category.EVICTED, 1)
    assert "node-3" in why.detail


def test_a_rank_that_fails_without_notice_is_as_before() -> None:
    assert step(RUNNING, seen(R, F), after=10) == Save(
        RUNNING.observed(seen(R, F).statuses).failed(WHY, NOON + timedelta(seconds=10))
    )
