"""The worlds that the contract of Backend is held against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import FakeGroups, ProcessGroups, World


@pytest.fixture(params=["fake", "process"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """One world of each kind."""
    made: World = FakeGroups() if request.param == "fake" else ProcessGroups(tmp_path / "groups")
    yield made
    await made.end()
