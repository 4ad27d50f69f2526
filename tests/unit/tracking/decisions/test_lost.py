"""Decisions about groups that may lose ranks, such as those of parameter servers with standbys."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason
from job_tracker.tracking.decisions import Rest, Save, Stop
from tests.support.decisions import WHY, F, P, R, S, step
from tests.support.jobs import NOON, job_of, spec


def running(max_lost: int, instances: int = 4) -> Job:
    wanted = spec(instances=instances)
    group = replace(wanted.group, max_lost=max_lost)
    ranks = tuple(RankStatus(number, R) for number in range(instances))
    return replace(job_of(replace(wanted, group=group), state=JobState.RUNNING), ranks=ranks)


def seen(*phases: Phase, at: Mapping[int, float] | None = None) -> Observation:
    """Return ranks in these phases. Those that failed did so at these seconds, or 100 s apart."""
    ranks = []
    for number, phase in enumerate(phases):
        why = replace(WHY, rank=number, summary=f"Rank {number} broke.") if phase is F else None
        ended = (at or {}).get(number, 100.0 * number) if phase is F else None
        ranks.append(RankObservation(RankStatus(number, phase), why, ended_at=ended))
    return Observation(tuple(ranks))


def failure(job: Job, found: Observation) -> int | None:
    """Return the rank whose failure ends the attempt."""
    decided = step(job, found, after=10_000)
    assert isinstance(decided, Save)
    assert decided.job.ending is not None
    assert decided.job.ending.diagnosis is not None
    return decided.job.ending.diagnosis.rank


def test_a_group_goes_on_without_ranks_that_it_may_lose_and_the_status_says_so() -> None:
    job = running(max_lost=2)
    first = step(job, seen(R, F, R, R))
    assert isinstance(first, Save)
    assert first.job.ending is None
    assert first.job.ranks[1].note == "Lost, and the others go on: Rank 1 broke."
    assert step(first.job, seen(R, F, R, R)) == Rest()
    second = step(first.job, seen(R, F, R, F))
    assert isinstance(second, Save)
    assert [rank.phase for rank in second.job.ranks] == [R, F, R, F]
    assert second.job.ending is None


def test_it_succeeds_without_them_once_the_others_have_ended() -> None:
    job = running(max_lost=1)
    done = step(job, seen(S, F, R, R))
    assert isinstance(done, Save)
    assert done.job.ending == Ending(JobState.SUCCEEDED, NOON)
    assert isinstance(step(done.job, seen(S, F, R, R)), Rest), "the others have time to end"
    ended = step(done.job, seen(S, F, S, S))
    assert isinstance(ended, Save)
    assert isinstance(step(ended.job, seen(S, F, S, S)), Stop)


def test_the_loss_of_one_rank_more_ends_the_attempt_and_is_its_cause() -> None:
    assert failure(running(max_lost=1), seen(R, F, R, F)) == 3
    assert failure(running(max_lost=2), seen(R, F, F, F)) == 3


def test_the_loss_of_the_master_ends_the_attempt_and_earlier_losses_are_not_its_cause() -> None:
    found = seen(F, F, R, R, at={0: 500.0, 1: 100.0})
    assert failure(running(max_lost=2), found) == 0


def test_a_loss_just_before_a_decisive_one_is_the_cause() -> None:
    """The group could not continue without this rank."""
    found = seen(F, F, R, R, at={0: 102.0, 1: 100.0})
    assert failure(running(max_lost=2), found) == 1


def test_a_rank_that_was_removed_at_an_unknown_time_is_lost_like_any_other() -> None:
    gone = RankObservation(RankStatus(3, F), replace(WHY, category=Category.POD_DELETED, rank=3))
    found = Observation((*seen(R, R, R).ranks, gone))
    decided = step(running(max_lost=1), found)
    assert isinstance(decided, Save)
    assert decided.job.ending is None


def test_a_loss_that_was_known_before_is_never_the_cause_even_if_its_time_is_unknown() -> None:
    why = replace(WHY, category=Category.NODE_LOST, rank=1)
    gone = RankObservation(RankStatus(1, F), why)
    before = step(running(max_lost=1), Observation((seen(R).ranks[0], gone, *seen(R, R, R, R).ranks[2:])))
    assert isinstance(before, Save)
    found = seen(R, R, F, R)
    later = Observation((found.ranks[0], gone, *found.ranks[2:]))
    assert failure(before.job, later) == 2
    decided = step(before.job, later, after=10_000)
    assert isinstance(decided, Save)
    assert decided.job.ranks[1].note.startswith("Lost, and the others go on")


@pytest.mark.parametrize("state", [JobState.LAUNCHING, JobState.RUNNING])
def test_a_rank_that_has_never_run_is_not_lost_but_could_not_be_started(state: JobState) -> None:
    job = running(max_lost=1)
    ranks = (*job.ranks[:3], RankStatus(3, P))
    assert failure(replace(job, state=state, ranks=ranks), seen(R, R, R, F)) == 3


def test_a_failure_during_a_notice_is_its_consequence_although_a_rank_was_lost_just_before() -> None:
    job = running(max_lost=1)
    lost = step(job, seen(R, F, R, R, at={1: NOON.timestamp() - 2}))
    assert isinstance(lost, Save)
    stopping = lost.job.preempted(Preemption(by_job=9, why=PreemptionReason.PRIORITY), NOON)
    noticed = seen(F, F, F, R, at={0: NOON.timestamp() + 2, 1: NOON.timestamp() - 2, 2: NOON.timestamp() + 1})
    decided = step(stopping, noticed, after=5)
    assert isinstance(decided, Save)
    assert decided.job.ending == stopping.ending


def test_a_loss_just_before_a_decisive_one_is_the_cause_even_if_it_was_seen_first() -> None:
    at = {0: 102.0, 1: 100.0}
    lost = step(running(max_lost=2), seen(R, F, R, R, at=at))
    assert isinstance(lost, Save)
    assert failure(lost.job, seen(F, F, R, R, at=at)) == 1


def test_a_rank_whose_failure_ends_the_attempt_is_not_called_lost_afterwards() -> None:
    job = running(max_lost=1)
    failed = step(replace(job, ranks=(*job.ranks[:3], RankStatus(3, P))), seen(R, R, R, F))
    assert isinstance(failed, Save)
    assert isinstance(step(failed.job, seen(R, R, R, F)), Stop)


@pytest.mark.parametrize("phases", [(R, F, R, R), (S, F, R, R)])
def test_a_group_that_may_lose_none_fails_as_before(phases: tuple[Phase, ...]) -> None:
    assert failure(running(max_lost=0), seen(*phases)) == 1
