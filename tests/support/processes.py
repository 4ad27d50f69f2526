"""The world of tests that write the programs of processes themselves. A conftest.py imports it."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.support.backends import ProcessGroups


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessGroups]:
    """Processes below the test's folder."""
    made = ProcessGroups(tmp_path / "groups")
    yield made
    await made.end()


def rank_process(rank: int = 0) -> psutil.Process:
    """The training process of a rank of job 1, found as an operator would: by its environment."""
    for process in psutil.Process().children(recursive=True):
        environment = process.environ()
        if environment.get("JOB_ID") == "1" and environment.get("RANK") == str(rank):
            return process
    raise AssertionError(f"rank {rank} does not run")
