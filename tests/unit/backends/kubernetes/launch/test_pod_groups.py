"""The PodGroup of a group: it exists before the pods, belongs to the master, and goes with the group."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.kubernetes.api_errors import NotFound
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from tests.support.backends import KubernetesGroups
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.jobs import NOON, job

GROUP, MASTER = "program-1", "program-1-master"
PAIR = job(instances=2)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def world(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[KubernetesGroups]:
    made = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
    yield made
    await made.end()


def opened(world: KubernetesGroups) -> KubernetesBackend:
    return world.open(gang={"scheduler": "volcano"})


async def test_the_pod_group_belongs_to_the_master_and_goes_with_the_group(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = opened(world)
    await backend.launch(PAIR)
    found, master = cluster.get(GROUP, "podgroups"), cluster.get(MASTER)
    assert found["spec"] == {"minMember": 2}
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [master["metadata"]["uid"]]
    await backend.stop(PAIR.group, SECOND)
    assert cluster.names("podgroups") == set()


async def test_a_repeated_launch_adopts_it(world: KubernetesGroups, cluster: FakeCluster) -> None:
    wanted = world.plan(PAIR, gang={"scheduler": "volcano"}).pod_group
    assert wanted is not None
    cluster.put("podgroups", dict(wanted))  # left by a launch that was interrupted before the master
    uid = cluster.get(GROUP, "podgroups")["metadata"]["uid"]
    for _ in range(2):
        await opened(world).launch(PAIR)
    found = cluster.get(GROUP, "podgroups")["metadata"]
    assert (found["uid"], len(found["ownerReferences"])) == (uid, 1)


async def test_it_exists_before_the_pods_and_a_stop_without_pods_removes_it(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    cluster.forbidden = {"POST pods"}
    with pytest.raises(LaunchFailed):
        await opened(world).launch(PAIR)
    assert cluster.names("podgroups") == {GROUP}
    assert await opened(world).stop(PAIR.group, SECOND) is None
    assert cluster.names("podgroups") == set()


async def test_one_of_an_earlier_store_is_replaced(world: KubernetesGroups, cluster: FakeCluster) -> None:
    earlier = world.plan(replace(PAIR, submitted_at=NOON - timedelta(days=1)), gang={"scheduler": "volcano"})
    assert earlier.pod_group is not None
    cluster.put("podgroups", dict(earlier.pod_group))
    uid = cluster.get(GROUP, "podgroups")["metadata"]["uid"]
    await opened(world).launch(PAIR)
    assert cluster.get(GROUP, "podgroups")["metadata"]["uid"] != uid


async def test_a_foreign_one_is_left_alone(world: KubernetesGroups, cluster: FakeCluster) -> None:
    cluster.put("podgroups", {"metadata": {"name": GROUP}, "spec": {"minMember": 1}})
    backend = opened(world)
    with pytest.raises(LaunchFailed) as failed:
        await backend.launch(PAIR)
    assert failed.value.diagnosis.category is Category.NAME_TAKEN
    await backend.stop(PAIR.group, SECOND)
    assert cluster.names("podgroups") == {GROUP}
    assert cluster.names() == set()


async def test_a_missing_right_is_named(world: KubernetesGroups, cluster: FakeCluster) -> None:
    cluster.forbidden = {"POST podgroups"}
    with pytest.raises(LaunchFailed) as failed:
        await opened(world).launch(PAIR)
    assert failed.value.diagnosis.category is Category.FORBIDDEN


async def test_a_cluster_without_pod_groups_is_named(
    world: KubernetesGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(world)

    async def unknown(*_: Any) -> None:
        raise NotFound(404, "NotFound", "the server could not find the requested resource")

    monkeypatch.setattr(backend.client, "create", unknown)
    with pytest.raises(LaunchFailed, match=r"does not know podgroups\.scheduling\.volcano\.sh"):
        await backend.launch(PAIR)
