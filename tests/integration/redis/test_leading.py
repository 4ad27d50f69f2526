"""Replicas on one server: resignations, and terms after a loss of data."""

import asyncio
from datetime import timedelta

import pytest

from job_tracker.domain.errors import LeadershipLost
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from tests.support.redis_server import RedisServer
from tests.support.stores import Open

LONG = timedelta(hours=1)


async def test_a_resignation_reaches_all_waiting_replicas(server: RedisServer, connect: Open) -> None:
    leader, *others = [await connect() for _ in range(3)]
    term = await leader.lead("leader", LONG)
    assert term is not None
    with others[0].resignations() as here, others[1].resignations() as there:
        await leader.resign(term)
        await asyncio.wait_for(anext(here), PATIENCE)
        await asyncio.wait_for(anext(there), PATIENCE)
    assert await others[0].lead("another", LONG) is not None


async def test_a_resignation_during_an_outage_is_announced_afterwards(
    server: RedisServer, connect: Open
) -> None:
    waiting = await connect()
    with waiting.resignations() as resignations:
        server.kill()
        server.start()
        await asyncio.wait_for(anext(resignations), PATIENCE)


async def test_an_operator_sees_the_leader(server: RedisServer, connect: Open) -> None:
    store = await connect()
    term = await store.lead("host/1", LONG)
    assert term is not None
    assert server.ask("HMGET", "{t}:leader", "holder", "term") == ["host/1", "1"]
    assert 3000 < server.ask("TTL", "{t}:leader") <= 3600
    await store.resign(term)
    assert server.ask("EXISTS", "{t}:leader") == 0
    assert server.ask("HGET", "{t}:meta", "term") == "1"


async def test_a_server_that_lost_its_last_second_gives_no_token_twice(
    server: RedisServer, connect: Open
) -> None:
    one, other = await connect(), await connect()
    job = await one.submit(spec(), NOON, None, 10)
    first = await one.lead("one", LONG)
    assert first is not None
    # The state of a moment before, when no replica had ever led.
    server.ask("DEL", "{t}:leader")
    server.ask("HDEL", "{t}:meta", "term", "term_token")
    second = await other.lead("other", LONG)
    assert second is not None
    assert (second.number, second.token != first.token) == (first.number, True)
    assert await one.lead("one", LONG, first) is None
    with pytest.raises(LeadershipLost):
        await one.update(job.admitted(NOON), term=first)
    assert await other.update(job.admitted(NOON), term=second)


async def test_a_new_leader_counts_the_queues_again_after_a_replica_that_keeps_no_counts(
    server: RedisServer, connect: Open
) -> None:
    """Earlier versions keep no counts. They should not run beside this version, but it may happen."""
    store = await connect()
    started, waiting, submitted = [await store.submit(spec(), NOON, None, 10) for _ in range(3)]
    other = await store.submit(spec(queue="other"), NOON, None, 10)
    term = await store.lead("an earlier version", LONG)
    assert term is not None
    server.ask("HSET", f"{{t}}:job:{started.id}", "state", "launching")
    server.ask("ZREM", "{t}:queued", str(started.id))
    server.ask("ZADD", "{t}:launching", str(started.id), str(started.id))
    server.ask("HDEL", f"{{t}}:job:{submitted.id}", "queue")
    server.ask("ZREM", "{t}:queue:default", str(submitted.id))
    server.ask("HSET", "{t}:queues", "default", "2")
    await store.resign(term)
    assert await store.lead("this version", LONG) is not None
    assert await store.queued_by_queue() == {"default": 2, "other": 1}
    assert [await store.queue_position(job) for job in (waiting, submitted, other)] == [0, 1, 0]
    assert server.ask("ZRANGE", "{t}:queue:default", "0", "-1") == [str(waiting.id), str(submitted.id)]
