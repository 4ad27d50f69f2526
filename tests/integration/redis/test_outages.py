"""Outages of the server: calls fail in time, nothing is half done, and work continues afterwards."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from job_tracker.backends.fake import FakeBackend
from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.reports import ReportBuffer
from job_tracker.store.queue_moves import QueueMoves
from job_tracker.store.redis import RedisStore
from job_tracker.store.redis.changes import ChangeFeed
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.jobs import NOON, spec
from tests.support.leadership import elected
from tests.support.logs import collector
from tests.support.patience import PATIENCE
from tests.support.redis_server import ANSWER_SECONDS, RedisServer
from tests.support.stores import Open


async def answers(store: RedisStore, job_id: int) -> Job:
    """Return the job once the server is back."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.get(job_id)
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def ended(store: RedisStore, job_id: int) -> Job:
    async with asyncio.timeout(PATIENCE):
        while not (job := await answers(store, job_id)).state.is_terminal:
            await asyncio.sleep(0.05)
    return job


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_calls_fail_in_time_and_work_again_afterwards(
    server: RedisServer, connect: Open, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    store = await connect()
    job = await store.submit(spec(), NOON, None, 10)
    connection, sizes = store._connection, list[int]()
    send = connection._answers

    async def counting(calls: list[Any]) -> list[Any]:
        sizes.append(len(calls))
        return await send(calls)

    monkeypatch.setattr(connection, "_answers", counting)
    # Only these calls, all of which fail, have a short limit. The others must succeed on a busy machine.
    connection.answer_seconds = 1.0
    server.kill() if how == "kill" else server.pause()
    begin = time.monotonic()
    results = await asyncio.gather(
        store.get(job.id),
        store.tallies(),
        *(store.submit(spec(), NOON, None, 100) for _ in range(64)),
        return_exceptions=True,
    )
    assert all(isinstance(result, StoreUnavailable) for result in results), results
    assert 0 < len(sizes) <= 4, f"they wait at the same time, in few batches: {sizes}"
    assert time.monotonic() - begin < ANSWER_SECONDS, "the limit of calls ends the wait, not the socket's"
    connection.answer_seconds = ANSWER_SECONDS
    server.start() if how == "kill" else server.resume()
    assert await answers(store, job.id) == job
    assert (await store.update(job.admitted(NOON))).state is JobState.LAUNCHING


async def test_a_server_that_was_killed_has_every_acknowledged_job(
    server: RedisServer, connect: Open
) -> None:
    store = await connect()
    jobs = await asyncio.gather(*(store.submit(spec(), NOON, None, 1000) for _ in range(200)))
    server.kill()
    server.start()
    await answers(store, jobs[0].id)
    assert [await store.get(job.id) for job in jobs] == list(jobs)
    assert (await store.submit(spec(), NOON, None, 1000)).id == 201


async def test_an_id_is_not_given_twice_by_a_server_that_lost_its_last_second(
    server: RedisServer, connect: Open
) -> None:
    store = await connect()
    for _ in range(3):
        job = await store.submit(spec(), NOON, None, 10)
    server.ask("SET", "{t}:last-id", "1")  # the state of a moment before
    assert (await store.submit(spec(), NOON, None, 10)).id == job.id + 1


async def test_a_server_that_comes_back_empty_is_left_empty_until_its_data_is_back(
    server: RedisServer, connect: Open
) -> None:
    store = await connect()
    job = await store.submit(spec(), NOON, None, 10)
    with redis.Redis(port=server.port) as client:
        backup = {key: client.dump(key) for key in client.scan_iter()}
    server.ask("FLUSHALL")
    for call in (store.submit(spec(), NOON, None, 10), store.get(job.id), store.update(job.admitted(NOON))):
        with pytest.raises(StoreUnavailable, match="has lost its data"):
            await call
    assert server.ask("DBSIZE") == 0
    with redis.Redis(port=server.port) as client:
        for key, value in backup.items():
            client.restore(key, 0, value)
    assert await store.get(job.id) == job


async def test_a_full_server_refuses_whole_writes(server: RedisServer, connect: Open) -> None:
    store = await connect()
    job = await store.submit(spec(), NOON, None, 10)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match=r"refuses: .* memory"):
        await store.submit(spec(), NOON, None, 10)
    with pytest.raises(StoreUnavailable, match=r"refuses: .* memory"):
        await store.update(job.admitted(NOON))
    assert await store.get(job.id) == job
    server.ask("CONFIG", "SET", "maxmemory", "0")
    assert (await store.submit(spec(), NOON, None, 10)).id == 2


async def test_the_tracker_pauses_and_continues(server: RedisServer, connect: Open, tmp_path: Path) -> None:
    store = await connect()
    options = TrackerOptions(capacity=1)
    backend = FakeBackend()
    logs = collector(store, backend.world, tmp_path)
    reports = ReportBuffer(store, utc_now)
    tracker = asyncio.create_task(Tracker(store, backend, logs, options, await elected(store), reports).run())
    try:
        first = await store.submit(spec({"RUN_SECONDS": "0.5"}), NOON, None, 10)
        waiting = [await store.submit(spec(), NOON, None, 10) for _ in range(3)]
        server.kill()
        await asyncio.sleep(1)
        server.start()
        for job in (first, *waiting):
            done = await ended(store, job.id)
            assert (done.state, done.attempt) == (JobState.SUCCEEDED, 1)
        assert not tracker.done()
    finally:
        tracker.cancel()
        await asyncio.wait([tracker])


async def test_watchers_get_the_changes_of_an_outage_afterwards(server: RedisServer, connect: Open) -> None:
    here, there = await connect(), await connect()
    job = await here.submit(spec(), NOON, None, 10)
    with here.changes(job.id) as changes:
        server.kill()
        server.start()
        await answers(there, job.id)
        await there.update(job.admitted(NOON))
        async with asyncio.timeout(PATIENCE):
            while (await anext(changes))[1] is not JobState.LAUNCHING:
                pass


async def test_watchers_of_queued_jobs_get_the_moves_of_an_outage_afterwards(
    server: RedisServer, connect: Open
) -> None:
    here, there = await connect(), await connect()
    jobs = [await here.submit(spec(), NOON, None, 10) for _ in range(3)]
    moves = QueueMoves(here)
    with here.changes(jobs[2].id) as changes:
        moves.watch(jobs[2].id, changes)
        server.kill()
        server.start()
        await answers(there, jobs[1].id)
        await there.update(jobs[1].ended(Ending(JobState.CANCELLED, NOON), NOON))
        async with asyncio.timeout(PATIENCE):
            while await answers(here, jobs[2].id) and await here.queue_position(jobs[2]) != 1:
                await anext(changes)
        moves.leave(changes)


async def test_a_write_of_a_cancelled_caller_is_announced(server: RedisServer, connect: Open) -> None:
    store = await connect()
    job = await store.submit(spec(), NOON, None, 10)
    with store.changes() as changes:
        server.pause()
        impatient = asyncio.ensure_future(store.update(job.admitted(NOON)))
        await asyncio.sleep(0.2)
        impatient.cancel()
        server.resume()
        assert await asyncio.wait_for(anext(changes), PATIENCE) == (job.id, JobState.LAUNCHING)


async def test_a_store_closes_although_its_library_loses_a_cancel(
    server: RedisServer, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio.wait_for in Python 3.11 loses a cancel that comes at the end of the call."""
    lost = asyncio.Event()

    async def follow(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if lost.is_set():
                raise
            lost.set()

    monkeypatch.setattr(ChangeFeed, "_follow", follow)
    store = await connect()
    await asyncio.sleep(0)  # the server listens now
    async with asyncio.timeout(PATIENCE):
        await store.close()
    assert lost.is_set()
