"""A tracker starts, stops and writes nothing after the end of its term."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.base import Mark, Watch
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import LeadershipLost
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.reports import ReportBuffer
from job_tracker.store.lease import Term
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.leadership import Tenure
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE

FOREVER = {"RUN_SECONDS": "forever"}


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class WatchedTenure(Tenure):
    """A tenure that records when it refused the tracker."""

    def __init__(self, term: Term, clock: Clock) -> None:
        super().__init__(term, 1.0, clock)
        self.refused = asyncio.Event()

    def check(self) -> None:
        try:
            super().check()
        except LeadershipLost:
            self.refused.set()
            raise


class Replica:
    """A tracker with its own term, on a shared store and a shared world."""

    def __init__(
        self, store: SqliteStore, world: FakeWorld, term: Term, backend: FakeBackend | None = None
    ) -> None:
        self.clock = Clock()
        self.tenure = WatchedTenure(term, self.clock)
        options = TrackerOptions(capacity=4, keep_finished=timedelta(hours=1))
        backend, reports = backend or FakeBackend(world), ReportBuffer(store, utc_now)
        logs = LogCollector(store, world, LogArchive("memory://logs"))
        self.tracker = Tracker(store, backend, logs, options, self.tenure, reports)

    @asynccontextmanager
    async def tracking(self) -> AsyncIterator["Replica"]:
        task = asyncio.create_task(self.tracker.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def was_refused(self) -> None:
        """Wait until the tracker was refused because its term is over."""
        await asyncio.wait_for(self.tenure.refused.wait(), PATIENCE)


class EndingBackend(FakeBackend):
    """A backend whose first look ends while the tracker is being cancelled."""

    def __init__(self, world: FakeWorld, steps: int) -> None:
        """`steps` of the event loop pass between the cancellation and the end of the look."""
        super().__init__(world)
        self._steps = steps
        self.task: asyncio.Task[None] | None = None

    async def watch(self) -> Watch:  # a generator
        assert self.task
        self.task.cancel()
        for _ in range(self._steps):
            await asyncio.sleep(0)
        yield Mark.END_OF_SNAPSHOT


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "jobs.db")
    yield opened
    await opened.close()


async def term(store: SqliteStore) -> Term:
    """Return the next term, after the end of the last one."""
    async with asyncio.timeout(PATIENCE):
        while (won := await store.lead("test", timedelta(milliseconds=1))) is None:
            await asyncio.sleep(0.001)
    return won


async def submit(store: SqliteStore) -> Job:
    return await store.submit(spec(FOREVER), NOON, None, 10)


async def reaches(store: SqliteStore, job_id: int, state: JobState) -> None:
    with store.changes(job_id) as changes:
        async with asyncio.timeout(PATIENCE):
            while (await store.get(job_id)).state is not state:
                await anext(changes)


async def test_a_tracker_of_an_earlier_term_ends_at_its_first_write(store: SqliteStore) -> None:
    world, job = FakeWorld(), await submit(store)
    old = Replica(store, world, await term(store))
    await term(store)
    async with old.tracking():
        async with asyncio.timeout(PATIENCE):
            await old.tenure._ended.wait()
    assert world.launches == []
    assert (await store.get(job.id)).state is JobState.QUEUED


async def test_a_tracker_that_slept_through_its_lease_launches_nothing(store: SqliteStore) -> None:
    world, job = FakeWorld(), await submit(store)
    await store.update(job.admitted(NOON))
    slept = Replica(store, world, await term(store))
    slept.clock.now = 1.0
    async with slept.tracking():
        await slept.was_refused()
    assert world.launches == []


async def test_a_tracker_that_slept_through_its_lease_stops_no_group(store: SqliteStore) -> None:
    world, job = FakeWorld(), await submit(store)
    replica = Replica(store, world, await term(store))
    async with replica.tracking():
        await reaches(store, job.id, JobState.RUNNING)
        replica.clock.now = 1.0
        running = await store.get(job.id)
        await store.update(running.decided(Ending(JobState.CANCELLED, utc_now(), at_once=True)))
        await replica.was_refused()
    assert [group.job_id for group in world.live] == [job.id]


async def test_a_tracker_that_slept_through_its_lease_stops_no_stray_group(store: SqliteStore) -> None:
    world, job = FakeWorld(), await submit(store)
    replica = Replica(store, world, await term(store))
    async with replica.tracking():
        await reaches(store, job.id, JobState.RUNNING)
        replica.clock.now = 1.0
        running = await store.get(job.id)
        await store.update(running.ended(Ending(JobState.FAILED, utc_now()), utc_now()))
    slept = Replica(store, world, replica.tenure.term)
    slept.clock.now = 1.0
    async with slept.tracking():
        await slept.was_refused()
    assert [group.job_id for group in world.live] == [job.id]


async def test_a_tracker_that_slept_through_its_lease_deletes_no_old_jobs(store: SqliteStore) -> None:
    long_ago = utc_now() - timedelta(days=1)
    job = await store.update((await submit(store)).admitted(NOON))
    await store.update(job.ended(Ending(JobState.FAILED, long_ago), long_ago))
    slept = Replica(store, FakeWorld(), await term(store))
    slept.clock.now = 1.0
    async with slept.tracking():
        await slept.was_refused()
    assert (await store.get(job.id)).state is JobState.FAILED


async def test_the_next_tracker_takes_the_pending_steps_of_the_last_one(store: SqliteStore) -> None:
    world, job = FakeWorld(), await submit(store)
    slept = Replica(store, world, await term(store))
    slept.clock.now = 1.0
    following = Replica(store, world, await term(store))
    async with slept.tracking(), following.tracking():
        await reaches(store, job.id, JobState.RUNNING)
        current = await store.get(job.id)
        await store.update(current.decided(Ending(JobState.CANCELLED, utc_now(), at_once=True)))
        await reaches(store, job.id, JobState.CANCELLED)
    assert [group.job_id for group in world.launches] == [job.id]
    assert world.live == {}


@pytest.mark.parametrize("steps", range(5))
async def test_a_tracker_that_is_cancelled_during_its_look_ends_in_silence(
    store: SqliteStore, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    backend = EndingBackend(FakeWorld(), steps)
    replica = Replica(store, backend.world, await term(store), backend)
    backend.task = asyncio.create_task(replica.tracker.run())
    await asyncio.wait([backend.task])
    assert backend.task.cancelled()
    gc.collect()  # a coroutine that was never awaited is a warning, and so a failure
    assert not caplog.records
