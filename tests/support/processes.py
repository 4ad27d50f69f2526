"""The fixture `world`, for tests that run their own programs as processes. A conftest.py imports it."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.support.backends import ProcessGroups


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessGroups]:
    """Processes in the test's folder."""
    made = ProcessGroups(tmp_path / "groups")
    yield made
    await made.end()


def rank_process(rank: int = 0) -> psutil.Process:
    """Find the training process of a rank of job 1 by its environment, as an operator would."""
    for process in psutil.Process().children(recursive=True):
        environment = process.environ()
        if environment.get("JOB_ID") == "1" and environment.get("RANK") == str(rank):
            return process
    raise AssertionError(f"rank {rank} does not run")
