"""A store that is away during a pass, on both stores: the pass is tried again, and nothing is half done."""

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Job, JobState
from job_tracker.reports import ReportBuffer
from job_tracker.scheduling.notes import USAGE, WAITING
from job_tracker.store.base import Store
from job_tracker.store.lease import Term
from job_tracker.store.redis import Address, RedisStore
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.jobs import spec
from tests.support.leadership import elected
from tests.support.logs import collector
from tests.support.patience import PATIENCE
from tests.support.redis_server import ANSWER_SECONDS, server_or_skip

CAPACITY = 4
Before = Callable[[str], Awaitable[None]]
"""Called with the name of each call to the store, before it."""


class Shaky:
    """A store whose calls fail: before they do anything, or after their effect, without an answer."""

    def __init__(self, store: Store, *, before: Before | None = None, after: Before | None = None) -> None:
        self._store, self._before, self._after = store, before, after
        self.arguments: tuple[Any, ...] = ()
        """The arguments of the last call."""

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._store, name)
        if not inspect.iscoroutinefunction(target):
            return target

        async def call(*arguments: Any, **more: Any) -> Any:
            self.arguments = arguments
            if self._before:
                await self._before(name)
            answer = await target(*arguments, **more)
            if self._after:
                await self._after(name)
            return answer

        return call


class Outage:
    """The first calls of each name fail."""

    def __init__(self, names: set[str], times: int = 2) -> None:
        self.left = Counter(dict.fromkeys(names, times))

    async def __call__(self, name: str) -> None:
        if self.left[name] > 0:
            self.left[name] -= 1
            raise StoreUnavailable("the store is away")

    @property
    def is_over(self) -> bool:
        return not +self.left


@pytest.fixture(params=["sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        opened: Store = await SqliteStore.open(tmp_path / "jobs.db")
        yield opened
        await opened.close()
        return
    server = server_or_skip(tmp_path / "redis")
    server.start()
    try:
        opened = await RedisStore.open(Address(server.url), answer_seconds=ANSWER_SECONDS)
        yield opened
        await opened.close()
    finally:
        server.end()


@asynccontextmanager
async def tracking(store: Any, world: FakeWorld, folder: Path, **options: Any) -> AsyncIterator[None]:
    logs, tenure = collector(store, world, folder), await elected(store)
    tracker = Tracker(
        *(store, FakeBackend(world), logs),
        TrackerOptions(capacity=CAPACITY, repair_period=timedelta(seconds=0.5), **options),
        *(tenure, ReportBuffer(store, utc_now)),
    )
    task = asyncio.create_task(tracker.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])
        await logs.close()
        await store.resign(tenure.term)


async def submit(store: Store, parameters: dict[str, str] | None = None, instances: int = 1) -> Job:
    return await store.submit(spec(parameters, instances=instances), utc_now(), None, 1000)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


READS = {"live_jobs", "first_queued", "list_jobs", "scheduling_notes", "scheduling_note", "get", "tallies"}
WRITES = {"update", "keep_scheduling_notes"}


@pytest.mark.parametrize("effect", ["refused", "without an answer"])
async def test_every_job_starts_once_although_the_store_is_away_during_passes(
    store: Store, tmp_path: Path, effect: str
) -> None:
    jobs = [await submit(store, instances=1 + number % 3) for number in range(12)]
    await submit(store, {"RUN_SECONDS": "forever"})  # so that there is a note of the use by its queue
    world, outage = FakeWorld(), Outage({*READS, *WRITES})
    shaky = Shaky(store, before=outage) if effect == "refused" else Shaky(store, after=outage)

    async def have_ended() -> bool:
        return all([(await store.get(job.id)).state is JobState.SUCCEEDED for job in jobs])

    async def was_hit() -> bool:
        return outage.is_over

    async with tracking(shaky, world, tmp_path):
        await until(have_ended)
        await until(was_hit)
    assert [(await store.get(job.id)).attempt for job in jobs] == [1] * len(jobs)
    assert Counter(group.job_id for group in world.launches) == Counter(range(1, len(jobs) + 2))
    assert await store.queued_by_queue() == {}
    world.close()


async def test_an_admission_without_an_answer_is_launched_and_takes_its_room(
    store: Store, tmp_path: Path
) -> None:
    """The leader does not know whether the job waits or runs. It must not start another job in its place."""
    world, outage = FakeWorld(), Outage({"update"}, times=1)
    first = await submit(store, {"RUN_SECONDS": "forever"}, instances=3)
    second = await submit(store, {"RUN_SECONDS": "forever"}, instances=2)
    async with tracking(Shaky(store, after=outage), world, tmp_path):

        async def runs() -> bool:
            return (await store.get(first.id)).state is JobState.RUNNING

        async def has_note() -> bool:
            return await store.scheduling_note(WAITING, str(second.id)) is not None

        await until(runs)
        await until(has_note)
        assert (await store.get(second.id)).state is JobState.QUEUED
    assert [group.job_id for group in world.launches] == [first.id]
    world.close()


async def test_an_end_that_the_store_refuses_frees_no_room(store: Store, tmp_path: Path) -> None:
    first = await submit(store, {"RUN_SECONDS": "0.1"}, instances=CAPACITY)
    second = await submit(store, instances=CAPACITY)
    refused = 0

    async def refuse(name: str) -> None:
        nonlocal refused
        if name == "update" and shaky.arguments[0].state is JobState.SUCCEEDED and refused < 3:
            refused += 1
            raise StoreUnavailable("the store is away")

    shaky, world = Shaky(store, before=refuse), FakeWorld()

    async def have_ended() -> bool:
        return (await store.get(second.id)).state is JobState.SUCCEEDED

    async with tracking(shaky, world, tmp_path):
        await until(have_ended)
    assert refused == 3
    end = (await store.get(first.id)).history[-1]
    start = (await store.get(second.id)).history[1]
    assert (end.state, start.state) == (JobState.SUCCEEDED, JobState.LAUNCHING)
    assert start.at >= end.at
    world.close()


async def test_a_decision_of_a_leader_whose_term_has_ended_meanwhile_is_dropped(
    store: Store, tmp_path: Path
) -> None:
    """The decision was made in the old term, and would be written in the next one."""
    job = await submit(store)
    terms: list[Term] = []

    async def lose(name: str) -> None:
        if name in ("update", "keep_scheduling_notes") and not terms:
            assert leader is not None
            await store.resign(leader)
            won = await store.lead("next", timedelta(minutes=1))
            assert won is not None
            terms.append(won)

    shaky = Shaky(store, before=lose)
    tenure = await elected(store)
    leader = tenure.term
    world = FakeWorld()
    logs = collector(store, world, tmp_path)
    tracker: Any = Tracker(
        *(shaky, FakeBackend(world), logs, TrackerOptions(capacity=CAPACITY), tenure),
        ReportBuffer(store, utc_now),
    )
    task = asyncio.create_task(tracker.run())
    async with asyncio.timeout(PATIENCE):
        assert await tenure.is_over(within=PATIENCE)
    task.cancel()
    await asyncio.wait([task])
    await logs.close()
    found = await store.get(job.id)
    assert (found.state, found.version, found.allocation) == (JobState.QUEUED, job.version, None)
    assert (world.launches, await store.scheduling_notes(WAITING)) == ([], {})
    await store.update(found.admitted(utc_now()), term=terms[0])
    world.close()


async def test_usage_survives_a_restart(store: Store, tmp_path: Path) -> None:
    await submit(store, {"RUN_SECONDS": "forever"}, instances=2)
    world = FakeWorld()

    async def used() -> float:
        notes = await store.scheduling_notes(USAGE)
        if "default" not in notes:
            return 0.0
        return float(json.loads(notes["default"])["amounts"].get("default", {}).get("instances", 0.0))

    async def is_written() -> bool:
        return await used() > 0

    async with tracking(store, world, tmp_path):
        await until(is_written)
    before = await used()

    async def has_grown() -> bool:
        return await used() > before

    async with tracking(store, world, tmp_path):
        await until(has_grown)
    world.close()
