"""The stores that the contract of JobStore is held against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.store.base import JobStore
from job_tracker.store.sqlite import SqliteStore
from tests.support.stores import Reopen


@pytest.fixture(params=["sqlite"])
async def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopen]:
    """Closes the store that it opened last, if any, and opens it (again), as a restart does."""
    opened: list[JobStore] = []

    async def again() -> JobStore:
        while opened:
            await opened.pop().close()
        opened.append(await SqliteStore.open(tmp_path / "jobs.db"))
        return opened[0]

    yield again
    while opened:
        await opened.pop().close()


@pytest.fixture
async def store(reopen: Reopen) -> JobStore:
    """An empty store."""
    return await reopen()
