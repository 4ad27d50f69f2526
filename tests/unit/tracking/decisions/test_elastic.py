"""Decisions about elastic groups, and about groups with parameter servers."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import RankStatus
from job_tracker.domain.job import Ending, JobState
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.tracking.decisions import Launch, Rest, Save, Stop
from tests.support.decisions import WHY, F, R, S, seen, step
from tests.support.jobs import NOON, job_of, spec

ELASTIC = job_of(spec(instances=3, elastic=Elastic(min_instances=1, max_restarts=2)), state=JobState.RUNNING)


def lost(restarts: int, *, of_master: bool = False) -> Observation:
    """Return three ranks of which the last (or the first) has failed. `restarts` is that of the last rank."""
    phases = (F, R, R) if of_master else (R, R, F)
    ranks = [
        RankObservation(RankStatus(n, p, restarts=restarts if n == 2 else 0), WHY if p is F else None)
        for n, p in enumerate(phases)
    ]
    return Observation(tuple(ranks))


def test_a_lost_worker_of_an_elastic_group_is_restarted_once_that_is_written() -> None:
    first = step(ELASTIC, lost(0))
    assert isinstance(first, Save)
    assert first.job.ending is None
    assert [rank.restarts for rank in first.job.ranks] == [0, 0, 1]
    assert WHY.summary in first.job.ranks[2].note
    assert step(first.job, lost(0)) == Launch()  # the decision repeats until the launch is done
    assert step(first.job, lost(0), launched=False) == Launch()
    second = step(first.job, lost(1))
    assert isinstance(second, Save)
    assert [rank.restarts for rank in second.job.ranks] == [0, 0, 2]


def test_where_no_rank_can_be_restarted_alone_a_lost_worker_ends_the_attempt() -> None:
    lost_one = step(ELASTIC, lost(0), restarts_ranks=False)
    assert isinstance(lost_one, Save)
    assert lost_one.job.ending is not None
    stalled = step(ELASTIC, seen(R, R, R), stall=replace(WHY, rank=2), restarts_ranks=False)
    assert isinstance(stalled, Save)
    assert stalled.job.ending is not None


def test_a_worker_that_is_lost_before_the_job_is_running_is_restarted() -> None:
    launching = replace(ELASTIC, state=JobState.LAUNCHING)
    first = step(launching, lost(0))
    assert isinstance(first, Save)
    assert first.job.ending is None
    assert first.job.restarts_of(2) == 1


def test_a_new_tracker_repeats_a_launch_with_restarts_but_never_launches_a_group_that_is_gone() -> None:
    current = (
        ELASTIC.observed(seen(R, R, R).statuses)
        .restarting(2, WHY, NOON)
        .observed(tuple(RankStatus(n, R, restarts=1 if n == 2 else 0) for n in range(3)))
    )
    running = Observation(tuple(RankObservation(status) for status in current.ranks))
    assert step(current, running, launched=False) == Launch()
    assert step(current, running) == Rest()
    gone = step(current, None, launched=False)
    assert isinstance(gone, Save)
    assert gone.job.diagnosis is not None
    assert gone.job.diagnosis.category is Category.GROUP_VANISHED


def test_the_restarts_of_workers_are_limited() -> None:
    current = ELASTIC.observed(lost(0).statuses).restarting(2, WHY, NOON).restarting(2, WHY, NOON)
    decided = step(current, lost(2))
    assert isinstance(decided, Save)
    assert decided.job.diagnosis == WHY


STALL = replace(WHY, category=Category.STALLED, rank=2)


def test_a_stalled_worker_of_an_elastic_group_is_replaced_alone_until_it_stalls_too_often() -> None:
    current = ELASTIC.observed(seen(R, R, R).statuses)
    for restarts in (1, 2):
        running = Observation(tuple(RankObservation(status) for status in current.ranks))
        decided = step(current, running, stall=STALL)
        assert isinstance(decided, Save)
        assert decided.job.ending is None
        assert decided.job.restarts_of(2) == restarts
        assert decided.job.history[-1].diagnosis == STALL
        assert (
            step(decided.job, running, launched=False) == Launch()
        )  # a crash before the launch loses nothing
        current = replace(
            decided.job, ranks=tuple(RankStatus(n, R, restarts=restarts if n == 2 else 0) for n in range(3))
        )
    running = Observation(tuple(RankObservation(status) for status in current.ranks))
    again = step(current, running, stall=STALL)
    assert isinstance(again, Save)
    assert again.job.diagnosis == STALL


@pytest.mark.parametrize("rank", [None, 0])
def test_a_stall_ends_an_elastic_attempt_if_no_worker_is_named(rank: int | None) -> None:
    stall = replace(STALL, rank=rank)
    decided = step(ELASTIC.observed(seen(R, R, R).statuses), seen(R, R, R), stall=stall)
    assert isinstance(decided, Save)
    assert decided.job.diagnosis == stall


def test_the_loss_of_the_master_ends_an_elastic_attempt() -> None:
    decided = step(ELASTIC, lost(0, of_master=True))
    assert isinstance(decided, Save)
    assert decided.job.diagnosis == WHY


@pytest.mark.parametrize("restarts", [0, 2])
def test_once_the_master_has_succeeded_a_worker_that_fails_counts_as_lost(restarts: int) -> None:
    # A worker that starts after the end of the training finds the rendezvous closed, and fails.
    current = ELASTIC.observed(seen(R, R, R).statuses)
    for _ in range(restarts):
        current = current.restarting(2, WHY, NOON)
    ranks = tuple(
        RankObservation(RankStatus(n, p, restarts=restarts if n == 2 else 0), WHY if p is F else None)
        for n, p in enumerate((S, R, F))
    )
    decided = step(current, Observation(ranks))
    assert isinstance(decided, Save)
    assert decided.job.ending == Ending(JobState.SUCCEEDED, NOON)
    assert decided.job.ranks[2].note.startswith("Lost, and the others go on")
    ended = step(decided.job, Observation((ranks[0], RankObservation(RankStatus(1, S)), ranks[2])))
    assert isinstance(ended, Save)
    assert ended.job.ending == Ending(JobState.SUCCEEDED, NOON)
    assert isinstance(step(ended.job, None), Stop)


def test_an_elastic_group_that_loses_too_many_workers_fails_although_its_master_has_succeeded() -> None:
    two = job_of(spec(instances=3, elastic=Elastic(min_instances=2)), state=JobState.RUNNING)
    decided = step(two.observed(seen(R, R, R).statuses), seen(S, F, F))
    assert isinstance(decided, Save)
    assert decided.job.diagnosis == WHY
    one_left = step(two.observed(seen(R, R, R).statuses), seen(S, R, F))
    assert isinstance(one_left, Save)
    assert one_left.job.ending == Ending(JobState.SUCCEEDED, NOON)


LATE = replace(
    WHY,
    rank=0,
    detail="Traceback (most recent call last):\n  raise RendezvousClosedError\n"
    "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
)


def test_a_master_that_starts_after_a_worker_has_completed_the_training_does_not_fail_the_job() -> None:
    current = ELASTIC.observed(seen(R, R, R).statuses)
    late = RankObservation(RankStatus(0, F, exit_code=1), LATE, ended_at=NOON.timestamp())
    found = Observation((late, *seen(R, S, S).ranks[1:]))
    decided = step(current, found)
    assert isinstance(decided, Save)
    assert decided.job.ending == Ending(JobState.SUCCEEDED, NOON)
    assert decided.job.ranks[0].note == "Started after the training was complete."
    assert isinstance(step(decided.job, found), Stop)


def test_a_closed_rendezvous_is_a_failure_if_no_instance_has_succeeded() -> None:
    current = ELASTIC.observed(seen(R, R, R).statuses)
    closed = RankObservation(RankStatus(0, F, exit_code=1), LATE, ended_at=0.0)
    decided = step(current, Observation((closed, *seen(F, F, F).ranks[1:])))
    assert isinstance(decided, Save)
    assert decided.job.diagnosis is not None


def test_parameter_servers_are_stopped_with_the_master_at_once() -> None:
    current = job_of(spec(instances=2, ends_with_master=True), state=JobState.RUNNING)
    decided = step(current, seen(S, R))
    assert isinstance(decided, Save)
    assert decided.job.ending == Ending(JobState.SUCCEEDED, NOON, at_once=True)
    assert step(decided.job, seen(S, R)) == Stop(decided.job.ending)


def test_the_next_attempt_begins_without_restarts() -> None:
    policy = RetryPolicy(max_attempts=2, retry_on=(Category.CRASHED,))
    failed = replace(ELASTIC, spec=replace(ELASTIC.spec, retry=policy)).observed(lost(1).statuses)
    again = failed.failed(WHY, NOON)
    assert again.ending is not None
    assert again.ended(again.ending, NOON).queued_again(NOON).admitted(NOON).restarts_of(2) == 0


def test_the_history_has_the_newest_restarts_if_there_are_many() -> None:
    current = ELASTIC.observed(lost(0).statuses)
    for second in range(150):
        current = current.restarting(2, WHY, NOON + timedelta(seconds=second))
    restarts = [move for move in current.history if move.is_restart]
    assert (len(restarts), restarts[-1].at) == (100, NOON + timedelta(seconds=149))
    assert restarts[0].diagnosis is not None
    assert (restarts[0].diagnosis.rank, restarts[0].diagnosis.detail) == (2, "")
    assert restarts[0].attempt == current.attempt
