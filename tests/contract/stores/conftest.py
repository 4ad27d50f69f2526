"""The stores that must fulfil the contract of Store."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from job_tracker.store.base import Store
from job_tracker.store.redis import Address, RedisStore
from job_tracker.store.sqlite import SqliteStore
from tests.support.redis_server import ANSWER_SECONDS, RedisServer, find_server, server_or_skip
from tests.support.stores import Reopen
from training_service.metrics.outside import Result, observed


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer | None]:
    """Start one server for all tests; None if Redis is not installed. Tests that need Redis are then skipped,
    or fail on CI.
    """
    if find_server() is None:
        yield None
        return
    server = server_or_skip(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.end()


@pytest.fixture(params=["sqlite", "redis", "observed"])
async def reopen(
    request: pytest.FixtureRequest, tmp_path: Path, shared_redis: RedisServer | None
) -> AsyncIterator[Reopen]:
    """Return a function that closes and reopens the store, as a restart does."""
    opened: list[Store] = []
    prefix = f"test-{uuid.uuid4().hex}"
    server = shared_redis or (server_or_skip(tmp_path) if request.param == "redis" else None)

    async def again() -> Store:
        while opened:
            await opened.pop().close()
        if request.param == "sqlite":
            opened.append(await SqliteStore.open(tmp_path / "jobs.db"))
        elif request.param == "observed":
            store: Store = await SqliteStore.open(tmp_path / "jobs.db")
            opened.append(observed(store, Store, _ignore))
        else:
            assert server is not None
            opened.append(await RedisStore.open(Address(server.url, prefix), answer_seconds=ANSWER_SECONDS))
        return opened[0]

    yield again
    while opened:
        await opened.pop().close()


def _ignore(operation: str, result: Result, seconds: float) -> None:
    """Do nothing; an OutsideObserver."""


@pytest.fixture
async def store(reopen: Reopen) -> Store:
    """Return an empty store."""
    return await reopen()
