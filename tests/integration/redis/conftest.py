"""A Redis server for each test, which may stop, kill, pause and empty it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from job_tracker.store.redis import Address, RedisStore
from tests.support.redis_server import ANSWER_SECONDS, RedisServer, server_or_skip
from tests.support.stores import Open


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Return a server that has not been started."""
    made = server_or_skip(tmp_path / "redis")
    yield made
    made.end()


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    """Return a running server whose acknowledged writes survive a kill, however busy the disk is."""
    redis_server.start("--appendfsync", "always")
    return redis_server


@pytest.fixture
async def connect(redis_server: RedisServer) -> AsyncIterator[Open]:
    """Return a function that opens stores, each like a replica."""
    async with AsyncExitStack() as stack:

        async def connect(url: str = "", *, memory: Path | None = None) -> RedisStore:
            address = Address(url or redis_server.url, "t")
            store = await RedisStore.open(address, answer_seconds=ANSWER_SECONDS, memory=memory)
            stack.push_async_callback(store.close)
            return store

        yield connect
