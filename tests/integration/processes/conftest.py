"""A world of processes whose programs the tests write themselves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import ProcessGroups


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessGroups]:
    """Processes below the test's folder."""
    made = ProcessGroups(tmp_path / "groups")
    yield made
    await made.end()
