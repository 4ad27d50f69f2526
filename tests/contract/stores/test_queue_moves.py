"""Watchers of queued jobs are woken when the queue before their job moves, and only then."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import AttemptReport
from job_tracker.store.base import Store
from job_tracker.store.jobs import Changes
from job_tracker.store.queue_moves import QueueMoves
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE


class Watchers:
    """Watchers of jobs, each with a task that ends at the next hint."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.moves = QueueMoves(store)
        self.stack = ExitStack()
        self.changes: dict[int, Changes] = {}
        self.hints: dict[int, asyncio.Task[tuple[int, JobState]]] = {}

    async def add(self, job: Job) -> None:
        changes = self.changes[job.id] = self.stack.enter_context(self.store.changes(job.id))
        self.moves.watch(job.id, changes)
        assert await anext(changes) == (job.id, JobState.QUEUED)
        self.wait_for_hint(job)

    def wait_for_hint(self, job: Job) -> None:
        self.hints[job.id] = asyncio.create_task(self._next(self.changes[job.id]))

    async def hint(self, job: Job) -> JobState:
        hinted = await asyncio.wait_for(self.hints[job.id], PATIENCE)
        self.wait_for_hint(job)
        return hinted[1]

    def is_hinted(self, job: Job) -> bool:
        return self.hints[job.id].done()

    async def _next(self, changes: Changes) -> tuple[int, JobState]:
        return await anext(changes)


@pytest.fixture
def watchers(store: Store) -> Iterator[Watchers]:
    """Return an empty set of watchers."""
    made = Watchers(store)
    yield made
    for changes in made.changes.values():
        made.moves.leave(changes)
    for task in made.hints.values():
        task.cancel()
    made.stack.close()


async def submitted(store: Store, count: int) -> list[Job]:
    return [await store.submit(spec(), NOON, None, 1000) for _ in range(count)]


async def cancel(store: Store, job: Job) -> None:
    await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))


async def test_watchers_behind_a_job_that_leaves_are_woken_and_those_before_it_are_not(
    store: Store, watchers: Watchers
) -> None:
    jobs = await submitted(store, 3)
    await watchers.add(jobs[0])
    await watchers.add(jobs[2])
    await cancel(store, jobs[1])
    assert await watchers.hint(jobs[2]) is JobState.QUEUED
    assert await store.queue_position(jobs[2]) == 1
    assert not watchers.is_hinted(jobs[0])
    await store.update(jobs[0].admitted(NOON))
    assert await watchers.hint(jobs[0]) is JobState.LAUNCHING
    assert await watchers.hint(jobs[2]) is JobState.QUEUED
    assert await store.queue_position(jobs[2]) == 0


async def test_changes_of_a_job_outside_the_queue_wake_no_watcher_until_it_returns(
    store: Store, watchers: Watchers
) -> None:
    jobs = await submitted(store, 4)
    await watchers.add(jobs[1])
    await watchers.add(jobs[3])
    running = await store.update(jobs[0].admitted(NOON))
    assert [await watchers.hint(jobs[n]) for n in (1, 3)] == [JobState.QUEUED] * 2

    running = await store.update(running.running(NOON))
    await store.record_reports(
        [AttemptReport(job_id=running.id, attempt=1, at=NOON, progress=Progress(step=1))]
    )
    await submitted(store, 1)
    waiting = await store.update(running.ended(Ending(JobState.BACKOFF, NOON), NOON))
    await cancel(store, jobs[2])
    assert await watchers.hint(jobs[3]) is JobState.QUEUED
    assert not watchers.is_hinted(jobs[1])

    await store.update(waiting.queued_again(NOON))
    assert [await watchers.hint(jobs[n]) for n in (1, 3)] == [JobState.QUEUED] * 2
    assert [await store.queue_position(jobs[n]) for n in (1, 3)] == [1, 2]


async def test_a_short_return_to_the_queue_wakes_all_watchers_behind(
    store: Store, watchers: Watchers
) -> None:
    jobs = await submitted(store, 3)
    await watchers.add(jobs[2])
    running = await store.update(jobs[0].admitted(NOON))
    await watchers.hint(jobs[2])
    waiting = await store.update(running.ended(Ending(JobState.BACKOFF, NOON), NOON))
    await cancel(store, jobs[1])
    await watchers.hint(jobs[2])
    # Within the second before the next hint. The watcher may read its position meanwhile.
    back = await store.update(waiting.queued_again(NOON))
    assert await store.queue_position(jobs[2]) == 1
    await cancel(store, back)
    assert await watchers.hint(jobs[2]) is JobState.QUEUED
    assert await store.queue_position(jobs[2]) == 0


async def test_a_fast_queue_wakes_watchers_at_most_once_a_second(store: Store, watchers: Watchers) -> None:
    jobs = await submitted(store, 20)
    last = jobs.pop()
    await watchers.add(last)
    begin, hints = time.monotonic(), 0
    for job in jobs:
        await cancel(store, job)
        if watchers.is_hinted(last):
            await watchers.hint(last)
            hints += 1
    assert hints <= 1 + (time.monotonic() - begin)
    while await store.queue_position(last):
        await watchers.hint(last)


async def test_a_watcher_that_left_is_not_woken_and_one_that_returns_is_woken_at_once(
    store: Store, watchers: Watchers
) -> None:
    jobs = await submitted(store, 3)
    await watchers.add(jobs[1])
    watchers.moves.leave(watchers.changes[jobs[1].id])
    await cancel(store, jobs[0])
    await watchers.add(jobs[2])
    assert not watchers.is_hinted(jobs[1])
    watchers.moves.watch(jobs[1].id, watchers.changes[jobs[1].id])
    assert await watchers.hint(jobs[1]) is JobState.QUEUED
