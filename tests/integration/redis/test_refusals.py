"""Servers that are refused, with a reason and unchanged."""

import logging
import socket
from pathlib import Path

import pytest

from job_tracker.domain.errors import StoreRefused
from job_tracker.store.redis import Address, RedisStore
from job_tracker.store.redis.changes import ChangeFeed
from job_tracker.store.redis.checks import problem_of
from job_tracker.store.redis.keys import SCHEMA
from tests.support.jobs import NOON, spec
from tests.support.redis_server import ANSWER_SECONDS, RedisServer, server_or_skip
from tests.support.stores import Open


async def refused(url: str, memory: Path | None = None) -> str:
    with pytest.raises(StoreRefused) as raised:
        await RedisStore.open(Address(url, "t"), answer_seconds=ANSWER_SECONDS, memory=memory)
    assert "\n" not in str(raised.value)
    return str(raised.value)


async def test_an_unreachable_server_is_refused() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert "cannot be reached" in await refused(f"redis://127.0.0.1:{port}/0")


async def test_a_server_that_stops_answering_during_the_start_is_refused_with_the_reason(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = ChangeFeed.start

    async def follow_in_silence(feed: ChangeFeed) -> None:
        server.pause()
        feed._connection.answer_seconds = 0.1
        await follow(feed)

    monkeypatch.setattr(ChangeFeed, "start", follow_in_silence)
    assert "its changes cannot be followed: no answer in time" in await refused(server.url)


async def test_a_server_without_persistence_is_refused(redis_server: RedisServer) -> None:
    redis_server.start(aof=False)
    assert "set appendonly yes" in await refused(redis_server.url)
    assert redis_server.ask("DBSIZE") == 0


async def test_a_server_with_snapshots_only_gets_a_warning(
    redis_server: RedisServer, connect: Open, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.start("--save", "60 1", aof=False)
    with caplog.at_level(logging.WARNING):
        await connect()
    assert "since its last snapshot" in caplog.text


async def test_a_server_that_evicts_is_refused(redis_server: RedisServer) -> None:
    redis_server.start("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
    assert "maxmemory-policy allkeys-lru" in await refused(redis_server.url)
    redis_server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    store = await RedisStore.open(Address(redis_server.url, "t"), answer_seconds=ANSWER_SECONDS)
    await store.close()


async def test_a_replica_is_refused(server: RedisServer, tmp_path: Path) -> None:
    replica = server_or_skip(tmp_path / "replica")
    try:
        replica.start("--replicaof", f"127.0.0.1 {server.port}")
        assert "read-only replica" in await refused(replica.url)
    finally:
        replica.end()


async def test_a_wrong_password_is_refused_and_not_repeated(redis_server: RedisServer) -> None:
    redis_server.start("--requirepass", "right")
    for url in (redis_server.url, redis_server.url.replace("//", "//:wr0ng@")):
        message = await refused(url)
        assert "denies access" in message
        assert "wr0ng" not in message
    address = Address(redis_server.url.replace("//", "//:right@"), "t")
    store = await RedisStore.open(address, answer_seconds=ANSWER_SECONDS)
    assert "right" not in str(store._connection.address)
    await store.close()


async def test_a_store_of_a_newer_version_is_refused(server: RedisServer) -> None:
    server.ask("HSET", "{t}:meta", "schema", str(SCHEMA + 1), "store", "x")
    assert "newer version" in await refused(server.url)


async def test_jobs_without_their_meta_are_refused(server: RedisServer, connect: Open) -> None:
    store = await connect()
    await store.submit(spec(), NOON, None, 10)
    server.ask("DEL", "{t}:meta")
    assert "restore its data" in await refused(server.url)


async def test_keys_of_another_program_are_refused(server: RedisServer) -> None:
    server.ask("SET", "{t}:meta", "mine")
    assert "cannot be used" in await refused(server.url)
    assert server.ask("GET", "{t}:meta") == "mine"


async def test_a_server_that_has_lost_its_data_is_refused_after_a_restart_too(
    server: RedisServer, connect: Open, tmp_path: Path
) -> None:
    memory = tmp_path / "redis.id"
    await connect(memory=memory)
    server.ask("FLUSHALL")
    assert "has lost its data" in await refused(server.url, memory)
    assert server.ask("DBSIZE") == 0
    await connect()  # another service makes a new store
    assert "has lost its data" in await refused(server.url, memory)
    memory.unlink()
    await connect(memory=memory)


async def test_another_store_that_an_earlier_version_wrote_is_refused_and_not_upgraded(
    server: RedisServer, tmp_path: Path
) -> None:
    memory = tmp_path / "redis.id"
    memory.write_text("the store that was here\n")
    server.ask("HSET", "{t}:meta", "schema", "3", "store", "another")
    assert "has lost its data" in await refused(server.url, memory)
    assert server.ask("HGET", "{t}:meta", "schema") == "3"
    assert server.ask("DBSIZE") == 1


async def test_a_managed_server_that_hides_its_settings_gets_a_warning(
    redis_server: RedisServer, connect: Open, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.start("--rename-command", "CONFIG", "", aof=False)
    with caplog.at_level(logging.WARNING):
        await (await connect()).submit(spec(), NOON, None, 10)
    assert "cannot find out whether it takes snapshots" in caplog.text


async def test_an_invalid_url_is_refused() -> None:
    assert "store.url" in await refused("redis://127.0.0.1:port/0")


def test_the_info_of_a_server_is_checked() -> None:
    good = {"role": "master", "aof_enabled": 1, "maxmemory": 0, "maxmemory_policy": "allkeys-lru"}
    assert problem_of(good, None) is None
    assert problem_of({}, None) is None
    assert problem_of({**good, "aof_enabled": 0}, "3600 1") is None
    assert problem_of({**good, "aof_enabled": 0}, "") is not None
    assert problem_of({**good, "role": "slave"}, None) is not None
    assert problem_of({**good, "maxmemory": 1}, None) is not None
