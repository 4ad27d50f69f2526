"""Groups that wait in the cluster's own queue: this wait is a part of their time in the queue."""

from dataclasses import replace
from datetime import datetime, timedelta

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.group import RankStatus
from job_tracker.domain.job import Job, JobState, new_job
from job_tracker.domain.policies import Deadlines
from job_tracker.tracking.decisions import Launch, Rest, Save
from tests.support.decisions import P, R, seen, step
from tests.support.jobs import NOON, spec

HOUR = timedelta(hours=1)


def launching(queue: timedelta | None = None, start: timedelta | None = HOUR) -> Job:
    """Return a job that was submitted an hour before it is launched, at NOON."""
    wanted = replace(spec(instances=2), deadlines=Deadlines(queue=queue, start=start))
    return new_job(1, wanted, NOON - HOUR).admitted(NOON)


def gated(note: str = "Waits for Kueue") -> Observation:
    ranks = [RankStatus(0, P, note=note, is_gated=True), RankStatus(1, P, is_gated=True)]
    return Observation(tuple(RankObservation(each) for each in ranks))


def saved(current: Job, observation: Observation, after: float = 0) -> Job:
    decided = step(current, observation, after=after)
    assert isinstance(decided, Save), decided
    return decided.job


def due(at: Job) -> datetime | None:
    return at.due_at


def test_the_time_to_start_does_not_count_while_the_group_waits() -> None:
    waiting = saved(launching(), gated())
    assert (waiting.is_gated, waiting.due_at, waiting.state) == (True, None, JobState.LAUNCHING)
    assert step(waiting, gated(), after=1e6) == Rest()


def test_it_counts_from_the_admission() -> None:
    started = saved(saved(launching(), gated()), seen(P, P), after=5000)
    assert due(started) == NOON + timedelta(seconds=5000) + HOUR
    late = saved(started, seen(P, P), after=5000 + 3600)
    assert late.diagnosis is not None
    assert late.diagnosis.category is Category.NEVER_STARTED


def test_one_rank_that_waits_is_enough() -> None:
    waiting = saved(launching(), gated())
    mixed = Observation((RankObservation(RankStatus(0, P)), gated().ranks[1]))
    assert saved(waiting, mixed).is_gated


def test_the_deadline_of_the_queue_counts_from_the_submission() -> None:
    waiting = saved(launching(queue=2 * HOUR), gated("Waits for Kueue: no quota"))
    assert due(waiting) == NOON + HOUR
    over = saved(waiting, gated("Waits for Kueue: no quota"), after=3600)
    assert over.ending is not None
    assert (over.ending.state, over.diagnosis and over.diagnosis.category) == (
        JobState.FAILED,
        Category.QUEUED_TOO_LONG,
    )
    assert over.diagnosis is not None
    assert over.diagnosis.detail == "Waits for Kueue: no quota"


def test_a_clock_that_was_set_back_does_not_shorten_the_wait() -> None:
    waiting = saved(launching(queue=10 * HOUR, start=timedelta(seconds=1)), gated())
    assert step(waiting, gated(), after=0) == Rest()


def test_another_leader_repeats_no_launch_of_a_group_that_waits() -> None:
    waiting = saved(launching(), gated())
    assert step(waiting, gated(), launched=False) == Rest()
    assert step(launching(), gated(), launched=False) == Launch()


def test_a_group_that_is_let_through_runs() -> None:
    waiting = saved(launching(), gated())
    assert saved(saved(waiting, seen(R, R)), seen(R, R)).state is JobState.RUNNING


def test_a_group_that_loses_its_place_waits_again_without_a_failure() -> None:
    notice = Eviction(why=EvictionReason.CLUSTER_QUEUE, at=NOON, detail="WorkloadDeleted")
    lost = Observation(tuple(replace(each, eviction=notice) for each in gated().ranks))
    ended = saved(saved(launching(), gated()), lost).ending
    assert ended is not None
    assert (ended.state, ended.eviction) == (JobState.QUEUED, notice)
    assert notice.sentence() == (
        "Evicted: the queue of the cluster stopped rank 0 on its node (WorkloadDeleted)."
    )
