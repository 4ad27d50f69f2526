"""What a policy sees of the queue, and what becomes of its decisions."""

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
    """Fifo, and what it was shown."""

    def __init__(self) -> None:
        self.seen: list[Snapshot] = []

    def plan(self, snapshot: Snapshot, now: datetime, /) -> Sequence[Decision]:
        self.seen.append(snapshot)
        return super().plan(snapshot, now)


class Queue:
    """A store with jobs, and what admits them."""

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
        """Whether it looks at the queue again, as the job has come into this state."""
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


async def test_a_policy_sees_the_head_of_a_long_queue_and_what_is_in_use(queue: Queue) -> None:
    jobs = await queue.submit(*[1] * 100)
    await queue.admitting.run()
    first, second, third = queue.policy.seen
    assert (first.capacity, first.in_use, first.has_room) == (CAPACITY, 0, True)
    assert [job.id for job in first.queued] == jobs[:32]
    assert (second.in_use, [job.id for job in second.queued]) == (32, jobs[32:40])
    assert (third.in_use, [job.id for job in third.queued]) == (40, jobs[40:41])
    live, queued = [JobState.LAUNCHING] * 40, [JobState.QUEUED] * 60
    assert await queue.states(*jobs) == live + queued


async def test_only_what_is_behind_the_waiting_head_needs_no_look(queue: Queue) -> None:
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


async def test_what_can_never_fit_ends_and_those_behind_it_go_on(queue: Queue) -> None:
    large, small = await queue.submit(CAPACITY + 1, 1)
    await queue.admitting.run()
    assert await queue.states(large, small) == [JobState.FAILED, JobState.LAUNCHING]
    diagnosis = (await queue.store.get(large)).diagnosis
    assert diagnosis is not None
    assert diagnosis.category is Category.EXCEEDS_CAPACITY
    assert f"needs {CAPACITY + 1} instances" in diagnosis.summary


async def test_a_job_that_changed_meanwhile_leaves_its_place_to_the_next(queue: Queue) -> None:
    cancelled, other = await queue.submit(CAPACITY, CAPACITY)
    queue.cancelled_meanwhile.add(cancelled)
    await queue.admitting.run()
    assert await queue.states(cancelled, other) == [JobState.CANCELLED, JobState.LAUNCHING]


async def test_a_store_that_is_away_is_no_reason_to_go_on(queue: Queue) -> None:
    (job_id,) = await queue.submit(1)
    queue.refuses[job_id] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await queue.admitting.run()
    await queue.admitting.run()
    assert await queue.states(job_id) == [JobState.LAUNCHING]


async def test_without_room_one_job_is_admitted_at_a_time_until_a_launch_finds_some(queue: Queue) -> None:
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


async def test_a_job_that_was_to_try_and_could_not_be_admitted_holds_up_no_other(queue: Queue) -> None:
    first, second = await queue.submit(1, 1)
    queue.admitting.found_no_room(99)
    queue.admitting.no_longer_waits(99)
    queue.refuses[first] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await queue.admitting.run()
    await queue.admitting.run()
    assert await queue.states(first, second) == [JobState.LAUNCHING, JobState.QUEUED]
