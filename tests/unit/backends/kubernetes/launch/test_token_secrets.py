"""The tokens of an attempt in a Secret, which the service creates but never reads."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.job import Job
from tests.support.backends import KubernetesGroups
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.jobs import job

MASTER, WORKER = "program-1-master", "program-1-1-worker"
PAIR = job(instances=2)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def world(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[KubernetesGroups]:
    made = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
    made.tell = tokens
    yield made
    await made.end()


def tokens(the_job: Job) -> dict[str, str]:
    return {"GROUP_TOKEN": f"g{the_job.attempt}", "REPORT_TOKEN": "r", "REPORT_ADDRESS": "service:1"}


def opened(world: KubernetesGroups, *, hidden: bool = True) -> KubernetesBackend:
    return world.open(token_secrets=hidden)


def environment(pod: Any) -> dict[str, Any]:
    variables = pod["spec"]["containers"][0]["env"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in variables}


async def test_pods_get_their_tokens_by_reference(world: KubernetesGroups, cluster: FakeCluster) -> None:
    backend = opened(world)
    await backend.launch(PAIR)
    (name,) = cluster.names("secrets")
    secret, master = cluster.get(name, "secrets"), cluster.get(MASTER)
    assert secret["stringData"] == {"GROUP_TOKEN": "g1", "REPORT_TOKEN": "r"}
    assert secret["immutable"] is True
    assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [master["metadata"]["uid"]]
    for pod in (master, cluster.get(WORKER)):
        found = environment(pod)
        assert found["GROUP_TOKEN"] == {"secretKeyRef": {"name": name, "key": "GROUP_TOKEN"}}
        assert found["REPORT_TOKEN"] == {"secretKeyRef": {"name": name, "key": "REPORT_TOKEN"}}
        assert found["REPORT_ADDRESS"] == "service:1"
        assert "g1" not in json.dumps(pod)
    asked = {word for word in cluster.asked if word.endswith("secrets")}
    assert asked == {"POST secrets"}


async def test_a_repeated_launch_reuses_its_secret_and_the_next_attempt_has_another(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    await opened(world).client.create("pods", world.plan(PAIR, token_secrets=True).pods[0])
    for _ in range(2):
        backend = opened(world)
        await backend.launch(PAIR)
    assert len(cluster.names("secrets")) == 1
    await backend.launch(replace(PAIR, attempt=2))
    assert len(cluster.names("secrets")) == 2


async def test_the_launch_reports_a_missing_right_to_create_secrets(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    cluster.forbidden.add("POST secrets")
    backend = opened(world)
    with pytest.raises(LaunchFailed) as failed:
        await backend.launch(PAIR)
    assert failed.value.diagnosis.category is Category.FORBIDDEN


async def test_there_is_no_secret_by_default(world: KubernetesGroups, cluster: FakeCluster) -> None:
    backend = opened(world, hidden=False)
    await backend.launch(PAIR)
    assert cluster.names("secrets") == set()
    assert environment(cluster.get(WORKER))["GROUP_TOKEN"] == "g1"


async def test_groups_launched_with_the_other_setting_are_adopted(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    for hidden in (False, True):
        backend = opened(world, hidden=hidden)
        await backend.launch(PAIR)
    assert cluster.names() == {MASTER, WORKER}
    assert cluster.asked["DELETE pods"] == 0
    assert cluster.names("secrets") == set()
