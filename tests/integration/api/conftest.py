"""Fixtures with running services."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.access import RedisOpener
from tests.support.api_service import Serve, Service, serve
from tests.support.redis_server import server_or_skip

__all__ = ["serve"]


@pytest.fixture
async def service(serve: Serve) -> Service:
    """A service that runs its jobs. They end at once, unless RUN_SECONDS is set."""
    return await serve()


@pytest.fixture
async def untracked(serve: Serve) -> Service:
    """A service whose jobs stay queued."""
    return await serve(tracked=False)


@pytest.fixture(params=["sqlite", "redis"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The opener of a store in Redis; None for SQLite, in a file."""
    if request.param == "sqlite":
        yield None
        return
    server = server_or_skip(tmp_path)
    server.start()
    yield RedisOpener(server)
    server.end()
