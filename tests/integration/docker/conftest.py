"""Fixtures of the integration tests with a Docker engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import DockerGroups
from tests.support.cluster import PROGRAM_IMAGE
from tests.support.docker_engine import DockerEngine
from tests.support.docker_fixtures import docker_engine, pytest_runtestloop

__all__ = ["docker_engine", "pytest_runtestloop"]


@pytest.fixture
async def world(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DockerGroups]:
    made = DockerGroups(docker_engine, PROGRAM_IMAGE, tmp_path / "logs")
    yield made
    docker_engine.heal()
    await made.end()
