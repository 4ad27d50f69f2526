"""Launches that are interrupted or refused, or that meet existing objects."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.kubernetes.labels import owned_by
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import BackendRefused, BackendUnavailable, InvalidField, LaunchFailed
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, groups_of, seen, started
from tests.support.jobs import NOON, job
from tests.support.patience import PATIENCE
from tests.support.place import Place

FOREVER = {"RUN_SECONDS": "forever"}
SHORT = timedelta(seconds=1)


async def refusal(world: KubernetesGroups, instances: int = 3) -> Diagnosis:
    backend = world.open()
    with pytest.raises(LaunchFailed) as refused:
        await backend.launch(job(FOREVER, instances=instances))
    await backend.stop(job().group, SHORT)
    assert await groups_of(backend) == {}
    return refused.value.diagnosis


def foreign_object(kind: str, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"ports": [{"port": 80}]}
    if kind == "Pod":
        spec = {"containers": [{"name": "main", "image": "nowhere.invalid/nothing:1"}]}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("made", [("master",), ("master", "service"), ("master", "worker")])
async def test_an_interrupted_launch_is_completed_by_the_next(
    world: KubernetesGroups, place: Place, made: tuple[str, ...]
) -> None:
    first = world.open()
    asked = job(FOREVER, instances=3)
    plan = world.plan(asked)
    assert plan.service is not None
    master = await first.client.create("pods", plan.pods[0])
    if "service" in made:
        await first.client.create("services", owned_by(plan.service, master))
    if "worker" in made:
        await first.client.create("pods", owned_by(plan.pods[2], master))
    second = world.open()
    found = (await groups_of(second))[job().group]
    assert found.first_failure is None  # pods not created yet do not count as deleted
    running = await started(second, asked)
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 3
    assert place.uid("pod", "program-1-master") == master["metadata"]["uid"]
    await second.stop(job().group, SHORT)
    assert place.left() == []


async def test_pods_of_another_plan_are_replaced(world: KubernetesGroups, place: Place) -> None:
    first = world.open()
    lost = replace(job(FOREVER, instances=2), submitted_at=NOON - timedelta(days=1))
    await started(first, lost)
    before = {name: place.uid("pod", name) for name in ("program-1-master", "program-1-1-worker")}
    second = world.open()
    running = await started(second, job(FOREVER, instances=2))
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 2
    assert all(place.uid("pod", name) != uid for name, uid in before.items())
    await second.stop(job().group, SHORT)
    assert place.left() == []


async def test_a_cancelled_launch_is_completed_by_the_next(world: KubernetesGroups, place: Place) -> None:
    backend = world.open()
    await groups_of(backend)
    asked = job(FOREVER, instances=4)
    for milliseconds in (2, 10, 20, 40):
        launching = asyncio.create_task(backend.launch(asked))
        await asyncio.sleep(milliseconds / 1000)
        launching.cancel()
        await asyncio.gather(launching, return_exceptions=True)
    running = await started(backend, asked)
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 4
    await backend.stop(job().group, SHORT)
    assert place.left() == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Pod", "program-1-master"),
        ("Pod", "program-1-2-worker"),
        ("Service", "program-1-master-service"),
    ],
)
async def test_a_foreign_object_with_our_name_is_left_alone(
    world: KubernetesGroups, place: Place, kind: str, name: str
) -> None:
    place.apply(foreign_object(kind, name))
    uid = place.uid(kind, name)
    diagnosis = await refusal(world)
    assert diagnosis.category is Category.NAME_TAKEN
    assert name in diagnosis.summary
    assert place.left() == [f"{kind.lower()}/{name}"]
    assert place.uid(kind, name) == uid
    assert "deletionTimestamp" not in place.cluster.get(place.namespace, kind, name)["metadata"]


async def test_a_quota_for_one_pod_leaves_nothing_of_a_larger_group(
    world: KubernetesGroups, place: Place
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    place.apply({**quota, "spec": {"hard": {"pods": "1"}}})
    async with asyncio.timeout(PATIENCE):  # a controller puts the quota into force in the background
        while not place.cluster.get(place.namespace, "resourcequota", "few").get("status", {}).get("used"):
            await asyncio.sleep(0.1)
    diagnosis = await refusal(world)
    assert (diagnosis.category, diagnosis.retryable) == (Category.QUOTA_EXCEEDED, True)
    assert "pods=1" in diagnosis.detail
    assert place.left() == []


async def test_a_deleted_namespace_is_named(world: KubernetesGroups, place: Place) -> None:
    other = f"{place.namespace}-gone"
    there = Place(place.cluster, other)
    place.cluster.kubectl("create", "namespace", other)
    place.cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Active", f"namespace/{other}")
    while "default" not in there.kubectl("get", "serviceaccounts", "-o", "name"):
        await asyncio.sleep(0.1)  # the account is created in the background
    world.namespace = other
    backend = world.open()
    await started(backend, job(FOREVER, instances=2))
    place.cluster.kubectl("delete", "namespace", other, "--wait=false")
    await seen(backend, job().group, lambda o: o.eviction is not None)
    with pytest.raises(LaunchFailed) as refused:
        await backend.launch(job(FOREVER, job_id=2))
    assert refused.value.diagnosis.category is Category.NAMESPACE_GONE
    assert other in refused.value.diagnosis.summary
    await backend.stop(job().group, SHORT)
    assert there.left() == []


async def test_a_launch_waits_for_an_earlier_pod_to_be_deleted(world: KubernetesGroups, place: Place) -> None:
    backend = world.open()
    lost = replace(job(FOREVER), submitted_at=NOON - timedelta(days=1))  # of an earlier store
    await started(backend, lost)
    place.kubectl("patch", "pod", "program-1-master", "-p", '{"metadata":{"finalizers":["x.test/hold"]}}')
    with pytest.raises(BackendUnavailable, match="finalizers"):
        await backend.stop(job().group, SHORT)
    asked = job(FOREVER)
    again = asyncio.create_task(backend.launch(asked))
    await asyncio.sleep(1)
    assert not again.done()
    place.kubectl("patch", "pod", "program-1-master", "-p", '{"metadata":{"finalizers":null}}')
    await again
    assert (await started(backend, asked)).statuses[0].phase is Phase.RUNNING
    await backend.stop(job().group, SHORT)
    assert place.left() == []


def with_rights(place: Place, tmp_path: Path, *verbs: str) -> Path:
    """Return the kubeconfig of an account with only these rights on pods and Services."""
    meta = {"metadata": {"name": "trainer"}}
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["pods", "services"], "verbs": list(verbs)}
    place.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", **meta},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", **meta, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            **meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "trainer"},
            "subjects": [{"kind": "ServiceAccount", "name": "trainer"}],
        },
    )
    return as_whom(place, tmp_path, place.token("trainer"))


def as_whom(place: Place, tmp_path: Path, token: str) -> Path:
    flat = place.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    config = json.loads(flat)
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


async def test_a_missing_right_is_named(world: KubernetesGroups, place: Place, tmp_path: Path) -> None:
    world.kubeconfig = with_rights(place, tmp_path, "get", "list", "watch", "delete")
    await world.open().connect()
    diagnosis = await refusal(world)
    assert diagnosis.category is Category.FORBIDDEN
    assert 'cannot create resource "pods"' in diagnosis.detail
    assert place.left() == []


async def test_an_account_without_rights_is_refused_at_the_start(
    world: KubernetesGroups, place: Place, tmp_path: Path
) -> None:
    world.kubeconfig = with_rights(place, tmp_path, "get")
    with pytest.raises(BackendRefused, match='cannot list resource "pods"'):
        await world.open().connect()


async def test_an_expired_token_is_refused_at_the_start(
    world: KubernetesGroups, place: Place, tmp_path: Path
) -> None:
    world.kubeconfig = as_whom(place, tmp_path, "expired")
    with pytest.raises(BackendRefused, match="expired"):
        await world.open().connect()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        ("", "not a kubeconfig"),
        ("a: [", "not a kubeconfig"),
        ("[1, 2]", "not a kubeconfig"),
        ("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: []\n", "x"),
    ],
)
async def test_an_invalid_kubeconfig_is_refused_in_one_line(
    tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    backend = KubernetesGroups(path, "default", "image:1", tmp_path).open()
    with pytest.raises(BackendRefused, match=words) as refused:
        await backend.connect()
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    await backend.close()


async def test_a_missing_context_is_refused(world: KubernetesGroups) -> None:
    backend = world.open(context="no-such-context")
    with pytest.raises(BackendRefused, match="no-such-context"):
        await backend.connect()


async def test_an_invalid_pod_is_refused_at_admission(world: KubernetesGroups, place: Place) -> None:
    mounts = [{"name": "training", "volumeMounts": [{"name": "no-such-volume", "mountPath": "/x"}]}]
    world.add("bad", pod_template={"spec": {"containers": mounts}})
    backend = world.open()
    await backend.check(job(FOREVER, instances=3))
    with pytest.raises(InvalidField, match="no-such-volume"):
        await backend.check(job(FOREVER, algorithm="bad"))
    with pytest.raises(LaunchFailed) as refused:
        await backend.launch(job(FOREVER, algorithm="bad"))
    assert refused.value.diagnosis.category is Category.INVALID_OBJECT
    await backend.stop(job().group, SHORT)
    assert place.left() == []
