"""The worlds that the contract of Backend is held against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import FakeGroups, KubernetesGroups, ProcessGroups, World
from tests.support.cluster_fixtures import *  # noqa: F403

_OF_A_CLUSTER = ("cluster", "namespace", "program_image")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have a cluster for the tests that need one, and for no others."""
    for item in items:
        called = getattr(item, "callspec", None)
        if isinstance(item, pytest.Function) and called and called.params.get("world") == "kubernetes":
            item.fixturenames = [*item.fixturenames, *_OF_A_CLUSTER]
            item.add_marker("cluster")


@pytest.fixture(params=["fake", "process", "kubernetes"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """One world of each kind."""
    made: World
    match request.param:
        case "fake":
            made = FakeGroups()
        case "process":
            made = ProcessGroups(tmp_path / "groups")
        case _:
            cluster, namespace, image = map(request.getfixturevalue, _OF_A_CLUSTER)
            made = KubernetesGroups(cluster.kubeconfig, namespace, image, tmp_path / "logs")
    yield made
    await made.end()
