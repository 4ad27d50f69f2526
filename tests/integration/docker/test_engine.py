"""Tests of a clean Docker engine: objects that one run leaves there do not reach the next run."""

import pytest

from tests.support.cluster import PROGRAM_IMAGE
from tests.support.docker_engine import DockerEngine


def test_an_engine_comes_up_without_the_objects_of_a_killed_run(docker_engine: DockerEngine) -> None:
    if not docker_engine.is_ours:
        pytest.skip("the tests did not start this Docker engine, so they must not clear it")
    label = "app.kubernetes.io/instance=of-a-killed-run"
    docker_engine.docker("create", "--network", "host", "--label", label, PROGRAM_IMAGE)
    docker_engine.docker("network", "create", "--label", label, "left-network")
    docker_engine.docker("volume", "create", "--label", label, "left-volume")
    assert len(docker_engine.left("of-a-killed-run")) == 3
    DockerEngine.up()
    assert docker_engine.left("of-a-killed-run") == []
