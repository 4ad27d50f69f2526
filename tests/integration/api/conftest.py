"""Fixtures with running services."""

import pytest

from tests.support.api_service import Serve, Service, serve

__all__ = ["serve"]


@pytest.fixture
async def service(serve: Serve) -> Service:
    """A service that runs its jobs. They end at once, unless RUN_SECONDS is set."""
    return await serve()


@pytest.fixture
async def untracked(serve: Serve) -> Service:
    """A service whose jobs stay queued."""
    return await serve(tracked=False)
