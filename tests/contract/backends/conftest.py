"""The worlds for the contract tests of Backend: one for each backend."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.support.backends import DockerGroups, FakeGroups, KubernetesGroups, ProcessGroups, ToyGroups, World
from tests.support.cluster import PROGRAM_IMAGE
from tests.support.cluster_fixtures import (
    cluster,
    namespace,
    program_image,
    pytest_collection_finish,
    pytest_runtest_makereport,
)
from tests.support.docker_fixtures import docker_engine, pytest_runtestloop

__all__ = [
    "cluster",
    "docker_engine",
    "namespace",
    "program_image",
    "pytest_collection_finish",
    "pytest_runtest_makereport",
    "pytest_runtestloop",
]

_OF_A_CLUSTER = ("cluster", "namespace", "program_image")
_NEEDS: Mapping[object, tuple[str, tuple[str, ...]]] = {
    "kubernetes": ("cluster", _OF_A_CLUSTER),
    "docker": ("engine", ("docker_engine",)),
}


def _kind_of(parameters: Mapping[str, object]) -> object:
    return parameters.get("world", parameters.get("machines"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of a backend that needs a cluster or an engine, so that these are started only for such
    tests.
    """
    for item in items:
        called = getattr(item, "callspec", None)
        needs = _NEEDS.get(_kind_of(called.params)) if called else None
        if isinstance(item, pytest.Function) and needs:
            marker, fixtures = needs
            item.fixturenames = [*item.fixturenames, *fixtures]
            item.add_marker(marker)


@pytest.fixture(params=["fake", "process", "toy", "kubernetes", "docker"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world of each kind."""
    made: World
    match request.param:
        case "fake":
            made = FakeGroups()
        case "process":
            made = ProcessGroups(tmp_path / "groups")
        case "toy":
            made = ToyGroups()
        case "docker":
            made = DockerGroups(request.getfixturevalue("docker_engine"), PROGRAM_IMAGE, tmp_path / "logs")
        case _:
            cluster, namespace, image = map(request.getfixturevalue, _OF_A_CLUSTER)
            made = KubernetesGroups(cluster.kubeconfig, namespace, image, tmp_path / "logs")
    yield made
    await made.end()
