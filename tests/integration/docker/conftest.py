"""Fixtures of the integration tests with a Docker engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.backends.docker import cache
from tests.support.backends import DockerGroups
from tests.support.cluster import PROGRAM_IMAGE
from tests.support.docker_engine import DockerEngine
from tests.support.docker_fixtures import docker_engine, pytest_runtestloop
from tests.support.patience import PATIENCE

__all__ = ["docker_engine", "pytest_runtestloop"]


@pytest.fixture(autouse=True)
def patient_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine take its time to send the end of the log of a failed rank, which a diagnosis needs."""
    monkeypatch.setattr(cache, "_TAIL_SILENCE", PATIENCE)


@pytest.fixture
async def world(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DockerGroups]:
    made = DockerGroups(docker_engine, PROGRAM_IMAGE, tmp_path / "logs")
    yield made
    docker_engine.heal()
    await made.end()
