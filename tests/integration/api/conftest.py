"""Fixtures with running services."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from job_tracker.catalog import Dataset
from job_tracker.store.sqlite import SqliteStore
from tests.support.api_service import ALGORITHMS, CAPACITY, Serve, Service
from tests.support.catalog import SETTINGS


@pytest.fixture
async def serve(tmp_path: Path, storage: Path) -> AsyncIterator[Serve]:
    """Starts services. All services of a test share one data folder, so stop one before the next."""
    async with AsyncExitStack() as stack:

        async def start(
            store: type[SqliteStore] = SqliteStore, *, tracked: bool = True, **changes: Any
        ) -> Service:
            values: dict[str, Any] = {
                "backend": "fake",
                "storage": {"data_dir": tmp_path},
                "scheduling": {"capacity": CAPACITY},
                "algorithms": ALGORITHMS,
                "datasets": {"1": Dataset(uri=f"{storage}/versionedDatasets/{{dataset_id}}/{{version}}")},
            }
            settings = SETTINGS(**{**values, **changes})
            service = Service(settings, await store.open(settings.storage.data_dir / "jobs.db"))
            stack.push_async_callback(service.stop)
            await service.start(tracked=tracked)
            return service

        yield start


@pytest.fixture
async def service(serve: Serve) -> Service:
    """A service that runs its jobs. They end at once, unless RUN_SECONDS is set."""
    return await serve()


@pytest.fixture
async def untracked(serve: Serve) -> Service:
    """A service whose jobs stay queued."""
    return await serve(tracked=False)
