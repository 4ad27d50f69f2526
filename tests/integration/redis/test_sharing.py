"""Replicas on one server: they receive each other's changes, and only one wins a job."""

import asyncio

import pytest

from job_tracker.domain.errors import StaleJob
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import AttemptReport
from job_tracker.store.jobs import JobFilter, RequestKey
from job_tracker.store.queue_moves import QueueMoves
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.stores import Open


async def test_a_replica_receives_the_changes_of_another(server: RedisServer, connect: Open) -> None:
    here, there = await connect(), await connect()
    with here.changes() as changes, here.changes(2) as of_two:
        async with asyncio.timeout(PATIENCE):
            job = await there.submit(spec(), NOON, None, 10)
            assert await anext(changes) == (job.id, JobState.QUEUED)
            job = await there.update(job.admitted(NOON))
            assert await anext(changes) == (job.id, JobState.LAUNCHING)
            assert await here.get(job.id) == job
            await there.record_reports(
                [AttemptReport(job_id=job.id, attempt=1, at=NOON, progress=Progress(step=1))]
            )
            assert await anext(changes) == (job.id, JobState.LAUNCHING)
            second = await there.submit(spec(), NOON, None, 10)
            assert await anext(of_two) == (second.id, JobState.QUEUED)


async def test_watchers_are_woken_when_another_replica_moves_the_queue(
    server: RedisServer, connect: Open
) -> None:
    here, there = await connect(), await connect()
    first, second = [await there.submit(spec(), NOON, None, 10) for _ in range(2)]
    moves = QueueMoves(here)
    with here.changes(second.id) as changes:
        moves.watch(second.id, changes)
        assert await anext(changes) == (second.id, JobState.QUEUED)
        await there.update(first.admitted(NOON))
        assert await asyncio.wait_for(anext(changes), PATIENCE) == (second.id, JobState.QUEUED)
        assert await here.queue_position(second) == 0
        moves.leave(changes)


async def test_foreign_messages_on_the_channel_are_ignored(server: RedisServer, connect: Open) -> None:
    store = await connect()
    with store.changes() as changes:
        for text in ("", "hello", "1 lost x", "x queued y"):
            server.ask("PUBLISH", "{t}:changes", text)
        server.ask("PUBLISH", "{t}:changes", "7 queued z")
        assert await asyncio.wait_for(anext(changes), PATIENCE) == (7, JobState.QUEUED)


async def test_one_of_several_concurrent_updates_wins(server: RedisServer, connect: Open) -> None:
    stores = [await connect() for _ in range(3)]
    for _ in range(20):
        job = await stores[0].submit(spec(), NOON, None, 100)
        results = await asyncio.gather(
            *(store.update(job.admitted(NOON)) for store in stores * 3), return_exceptions=True
        )
        assert sum(isinstance(result, Job) for result in results) == 1
        assert sum(isinstance(result, StaleJob) for result in results) == 8


async def test_concurrent_submissions_get_different_ids(server: RedisServer, connect: Open) -> None:
    stores = [await connect(), await connect()]
    jobs = await asyncio.gather(*(stores[number % 2].submit(spec(), NOON, None, 100) for number in range(64)))
    assert sorted(job.id for job in jobs) == list(range(1, 65))
    key = RequestKey("k", b"digest")
    same = await asyncio.gather(*(store.submit(spec(), NOON, key, 100) for store in stores * 10))
    assert {job.id for job in same} == {65}


async def test_an_operator_sees_the_lists(server: RedisServer, connect: Open) -> None:
    """The test uses the commands of docs/redis.md."""
    store = await connect()
    jobs = [await store.submit(spec(instances=2), NOON, RequestKey(f"k{n}", b"d"), 10) for n in range(4)]
    await store.update(jobs[0].admitted(NOON))
    running = (await store.update(jobs[1].admitted(NOON))).running(NOON)
    await store.update(running)
    await store.update(jobs[2].ended(Ending(JobState.CANCELLED, NOON), NOON))
    for name, ids in {
        "queued": ["4"],
        "launching": ["1"],
        "running": ["2"],
        "finished": ["3"],
        "cancelled": ["3"],
        "succeeded": [],
        "jobs": ["1", "2", "3", "4"],
        "algorithm:program": ["1", "2", "3", "4"],
    }.items():
        assert server.ask("ZRANGE", f"{{t}}:{name}", "0", "-1") == ids, name
    assert server.ask("ZSCORE", "{t}:finished", "3") == NOON.timestamp()
    assert server.ask("ZRANK", "{t}:queued", "4") == 0
    assert server.ask("HMGET", "{t}:job:2", "state", "version", "name") == ["running", "3", "a-name"]
    assert server.ask("HGET", "{t}:job:2", "started_at") == NOON.isoformat()
    assert server.ask("GET", "{t}:last-id") == "4"
    assert server.ask("HGET", "{t}:requests", "k3") == "4"
    assert server.ask("HMGET", "{t}:tallies", "running:jobs", "running:instances") == ["1", "2"]
    assert all(key.startswith("{t}:") for key in server.ask("KEYS", "*"))


async def test_no_key_of_a_deleted_job_is_left(server: RedisServer, connect: Open) -> None:
    store = await connect()
    before = set(server.ask("KEYS", "*"))
    job = await store.submit(spec(), NOON, RequestKey("k", b"d"), 10)
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON))
    await store.annotate(job, ("a",), "n")
    await store.delete([job.id])
    await store.forget_remains([job.id])
    assert set(server.ask("KEYS", "*")) - before == {"{t}:last-id", "{t}:tallies"}


@pytest.mark.parametrize("spread", [1, 7])
async def test_long_lists_are_read_in_parts(server: RedisServer, connect: Open, spread: int) -> None:
    store = await connect()
    count, jobs = 2500, []
    for begin in range(0, count, 100):  # all at once could wait longer than a call to Redis may take
        jobs += await asyncio.gather(
            *(
                store.submit(
                    spec(name="rare" if n % 500 == 0 else "common", algorithm=f"a{n % spread}"),
                    *(NOON, None, count),
                )
                for n in range(begin, begin + 100)
            )
        )
    by_id = sorted(jobs, key=lambda job: -job.id)
    for where in (
        JobFilter(),
        JobFilter(name_prefix="rar"),
        JobFilter(name_prefix="c", algorithm="a0"),
        JobFilter(name_prefix="rare", states=frozenset(JobState)),
        JobFilter(algorithm="a0", states=frozenset({JobState.QUEUED, JobState.RUNNING})),
    ):
        wanted = [
            job
            for job in by_id
            if job.spec.name.startswith(where.name_prefix)
            and job.spec.algorithm == (where.algorithm or job.spec.algorithm)
        ]
        assert list((await store.list_jobs(where, limit=count)).jobs) == wanted
        pages: list[Job] = []
        page = await store.list_jobs(where, limit=99)
        while page.has_more:
            pages += page.jobs
            page = await store.list_jobs(where, limit=99, before=pages[-1].id)
        assert [*pages, *page.jobs] == wanted


async def test_a_node_of_a_cluster_works_too(redis_server: RedisServer, connect: Open) -> None:
    # By default, a node also listens at its port plus 10000, which another test may use. Redis 6 always does.
    redis_server.start()
    bus = ("--cluster-port", str(free_port())) if redis_server.ask("CONFIG", "GET", "cluster-port") else ()
    redis_server.end()
    redis_server.start("--cluster-enabled", "yes", *bus)
    redis_server.ask("CLUSTER", "ADDSLOTS", *(str(slot) for slot in range(16384)))
    async with asyncio.timeout(PATIENCE):
        while "cluster_state:ok" not in redis_server.ask("CLUSTER", "INFO"):
            await asyncio.sleep(0.05)
    here, there = await connect(), await connect()
    with here.changes() as changes:
        job = await there.submit(spec(), NOON, RequestKey("k", b"d"), 10)
        assert await asyncio.wait_for(anext(changes), PATIENCE) == (job.id, JobState.QUEUED)
    assert await here.update(job.admitted(NOON)) == await there.get(job.id)
    assert (await here.list_jobs(JobFilter(name_prefix="a", algorithm="program"), limit=5)).jobs
