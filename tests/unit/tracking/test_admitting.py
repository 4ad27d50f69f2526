"""Admission of queued jobs: the snapshot for the policy, and its decisions."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.scheduling.fifo import Fifo
from job_tracker.scheduling.policy import Decision, Snapshot
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.admitting import Admitting
from tests.support.jobs import NOON, spec

CAPACITY = 40


class Watched(Fifo):
    """Fifo that records its snapshots."""

    def __init__(self) -> None:
        self.seen: list[Snapshot] = []

    def plan(self, snapshot: Snapshot, now: datetime, /) -> Sequence[Decision]:
        self.seen.append(snapshot)
        return super().plan(snapshot, now)


class Queue:
    """A store with jobs, and their admission."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.policy = Watched()
        self.woken = 0
        self.refuses: dict[int, Exception] = {}
        self.cancelled_meanwhile: set[int] = set()
        self.admitting = Admitting(store, self.policy, CAPACITY, self._save, self._wake, lambda: NOON)

    async def submit(self, *sizes: int) -> list[int]:
        return [(await self.store.submit(spec(instances=size), NOON, None, 1000)).id for size in sizes]

    async def states(self, *job_ids: int) -> list[JobState]:
        return [(await self.store.get(job_id)).state for job_id in job_ids]

    async def end(self, job_id: int) -> None:
        job = await self.store.get(job_id)
        await self.store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))

    def wakes(self, job_id: int, state: JobState) -> bool:
        """Return whether admission wakes when the job enters this state."""
        before = self.woken
        self.admitting.job_changed(job_id, state)
        return self.woken > before

    async def _save(self, before: Job, after: Job) -> None:
        if before.id in self.refuses:
            raise self.refuses.pop(before.id)
        if before.id in self.cancelled_meanwhile:
            await self.end(before.id)
        await self.store.update(after)

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield Queue(store)
    await store.close()


async def test_a_policy_sees_the_head_of_a_long_queue_and_the_instances_in_use(queue: Queue) -> None:
    jobs = await queue.submit(*[1] * 100)
    await queue.admitting.run()
    first, second, third = queue.policy.seen
    assert (first.capacity, first.in_use, first.has_room) == (CAPACITY, 0, True)
    assert [job.id for job in first.queued] == jobs[:32]
    assert (second.in_use, [job.id for job in second.queued]) == (32, jobs[32:40])
    assert (third.in_use, [job.id for job in third.queued]) == (40, jobs[40:41])
    live, queued = [JobState.LAUNCHING] * 40, [JobState.QUEUED] * 60
    assert await queue.states(*jobs) == live + queued


async def test_changes_behind_the_waiting_head_do_not_wake_admission(queue: Queue) -> None:
    running, head, behind = await queue.submit(30, 20, 1)
    assert queue.wakes(running, JobState.QUEUED)
    await queue.admitting.run()
    assert await queue.states(running, head, behind) == [
        JobState.LAUNCHING,
        JobState.QUEUED,
        JobState.QUEUED,
    ]
    assert not queue.wakes(behind, JobState.QUEUED)
    assert not queue.wakes(running, JobState.RUNNING)
    assert queue.wakes(running, JobState.QUEUED), "it comes back before the head"
    await queue.admitting.run()
    assert queue.wakes(running, JobState.SUCCEEDED)


async def test_a_job_that_can_never_fit_fails_and_later_jobs_start(queue: Queue) -> None:
    large, small = await queue.submit(CAPACITY + 1, 1)
    await queue.admitting.run()
    assert await queue.states(large, small) == [JobState.FAILED, JobState.LAUNCHING]
    diagnosis = (await queue.store.get(large)).diagnosis
    assert diagnosis is not None
    assert diagnosis.category is Category.EXCEEDS_CAPACITY
    assert f"needs {CAPACITY + 1} instances" in diagnosis.summary


async def test_the_next_job_starts_in_place_of_one_that_was_cancelled_meanwhile(queue: Queue) -> None:
    cancelled, other = await queue.submit(CAPACITY, CAPACITY)
    queue.cancelled_meanwhile.add(cancelled)
    await queue.admitting.run()
    assert await queue.states(cancelled, other) == [JobState.CANCELLED, JobState.LAUNCHING]


async def test_an_unavailable_store_ends_the_round(queue: Queue) -> None:
    (job_id,) = await queue.submit(1)
    queue.refuses[job_id] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await queue.admitting.run()
    await queue.admitting.run()
    assert await queue.states(job_id) == [JobState.LAUNCHING]


async def test_without_room_jobs_are_admitted_one_at_a_time_until_a_launch_finds_room(queue: Queue) -> None:
    first, second, third = await queue.submit(1, 1, 1)
    queue.admitting.found_no_room(first)
    await queue.admitting.run()
    assert not queue.policy.seen, "none is admitted while a launch waits"
    await queue.end(first)
    queue.admitting.no_longer_waits(first)
    assert queue.woken == 1
    await queue.admitting.run()
    await queue.admitting.run()
    assert not queue.policy.seen[0].has_room
    assert await queue.states(second, third) == [JobState.LAUNCHING, JobState.QUEUED]
    assert queue.admitting.found_room() == [second]
    await queue.admitting.run()
    assert await queue.states(third) == [JobState.LAUNCHING]
    assert queue.policy.seen[-1].has_room
    queue.admitting.no_longer_waits(third)
    assert queue.woken == 2, "a job that did not wait holds up no other"


async def test_a_trial_job_that_cannot_be_admitted_does_not_block_others(queue: Queue) -> None:
    first, second = await queue.submit(1, 1)
    queue.admitting.found_no_room(99)
    queue.admitting.no_longer_waits(99)
    queue.refuses[first] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await queue.admitting.run()
    await queue.admitting.run()
    assert await queue.states(first, second) == [JobState.LAUNCHING, JobState.QUEUED]
