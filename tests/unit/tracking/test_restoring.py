"""A job of a restored store moves to its newest existing attempt."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.policies import Elastic
from job_tracker.tracking.restoring import caught_up
from tests.support.jobs import NOON, job, job_of, spec

LATER = NOON + timedelta(hours=1)
QUEUED = job(state=JobState.QUEUED, attempt=0)
LAUNCHING = QUEUED.admitted(NOON)
RUNNING = LAUNCHING.running(NOON)
FAILED = Ending(JobState.BACKOFF, NOON)
BACKOFF = RUNNING.ended(FAILED, NOON)
CANCELLING = RUNNING.decided(Ending(JobState.CANCELLED, NOON))


def path(moved: Job, there: set[int]) -> list[tuple[JobState, int]]:
    steps = []
    groups = dict.fromkeys(there, moved.spec.instances)
    while (following := caught_up(moved, groups, LATER)) is not None:
        steps.append((following.state, following.attempt))
        moved = following
    return steps


@pytest.mark.parametrize(
    ("before", "there", "moves"),
    [
        (QUEUED, set(), []),
        (QUEUED, {1}, [(JobState.LAUNCHING, 1)]),
        (LAUNCHING, {1}, []),
        (RUNNING, {1}, []),
        (LAUNCHING, set(), [(JobState.BACKOFF, 1)]),
        (RUNNING, set(), [(JobState.BACKOFF, 1)]),
        (RUNNING, {2}, [(JobState.BACKOFF, 1), (JobState.QUEUED, 1), (JobState.LAUNCHING, 2)]),
        (RUNNING, {1, 2}, [(JobState.BACKOFF, 1), (JobState.QUEUED, 1), (JobState.LAUNCHING, 2)]),
        (BACKOFF, set(), []),
        (BACKOFF, {1}, []),
        (BACKOFF, {2}, [(JobState.QUEUED, 1), (JobState.LAUNCHING, 2)]),
        (RUNNING.decided(FAILED), {1}, []),
        (CANCELLING, set(), []),
        (CANCELLING, {1}, []),
        (RUNNING.ended(Ending(JobState.SUCCEEDED, NOON), NOON), {1}, []),
    ],
)
def test_a_job_moves_to_its_newest_existing_attempt(
    before: Job, there: set[int], moves: list[tuple[JobState, int]]
) -> None:
    assert path(before, there) == moves


def test_another_attempt_follows_an_unknown_end_with_any_policy() -> None:
    assert RUNNING.spec.retry.max_attempts == 1
    moved = caught_up(RUNNING, {}, LATER)
    assert moved is not None
    assert (moved.state, moved.due_at) == (JobState.BACKOFF, LATER)
    assert moved.last_failure is not None
    assert moved.last_failure.category is Category.GROUP_VANISHED
    assert "restored from a backup" in moved.last_failure.summary


def test_a_running_group_keeps_its_deadline() -> None:
    timed = replace(RUNNING, due_at=LATER)
    assert caught_up(timed, {1: 1}, LATER) is None


def test_an_elastic_group_that_was_launched_since_keeps_its_number_of_trainers() -> None:
    wanted = spec(roles={"master": 1, "worker": 3, "evaluator": 1}, elastic=Elastic(min_instances=1))
    queued = job_of(wanted, state=JobState.QUEUED, attempt=0)
    moved = caught_up(queued, {1: 3}, LATER)
    assert moved is not None
    assert (moved.state, moved.allocation, moved.instances) == (
        JobState.LAUNCHING,
        Allocation(trainers=moved.spec.group.trainers_count - 2),
        3,
    )
    whole = caught_up(queued, {1: 5}, LATER)
    assert whole is not None
    assert (whole.allocation, whole.instances) == (None, 5)
    behind = caught_up(queued, {2: 3}, LATER)
    assert behind is not None
    assert behind.allocation is None, "nothing is known of the first attempt"
