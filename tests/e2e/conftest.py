"""Fixtures with services as users run them."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster_fixtures import (
    cluster,
    namespace,
    program_image,
    pytest_collection_finish,
    pytest_runtest_makereport,
)
from tests.support.docker_fixtures import docker_engine, pytest_runtestloop
from tests.support.redis_server import ANSWER_SECONDS, RedisServer, server_or_skip
from tests.support.server import Server, forked_services, server, service_forks

__all__ = [
    "cluster",
    "docker_engine",
    "forked_services",
    "namespace",
    "program_image",
    "pytest_collection_finish",
    "pytest_runtest_makereport",
    "pytest_runtestloop",
    "server",
    "service_forks",
]


@pytest.fixture(autouse=True)
def services_are_forked(forked_services: None) -> None:
    """Services are forked, unless a file of tests overrides `forked_services`."""


@pytest.fixture
def make_server(tmp_path: Path, storage: Path) -> Callable[[str], Server]:
    """Return a function that makes services which share the data folder.

    The test must end each service that it starts.
    """
    return functools.partial(Server, tmp_path)


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A running Redis server, which services use as their store."""
    made = server_or_skip(tmp_path / "redis")
    made.start("--requirepass", "s3cret")
    made.password = "s3cret"
    monkeypatch.setenv("TRAINING_SERVICE_STORE__URL", made.url)
    monkeypatch.setenv("TRAINING_SERVICE_STORE__ANSWER_SECONDS", str(ANSWER_SECONDS))
    yield made
    made.end()
