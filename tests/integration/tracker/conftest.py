"""Fixtures with a running tracker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.tracked_service import Service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A running service with a capacity of 4 instances."""
    made = Service(tmp_path)
    await made.start()
    yield made
    await made.stop()
    made.world.close()
