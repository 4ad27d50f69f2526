"""Pods of stopped groups that are kept for inspection: which ones, in what state, and how long."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.labels import owned_by
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, groups_of, printed, seen, started
from tests.support.jobs import NOON, job
from tests.support.place import Place

FOREVER = {"RUN_SECONDS": "forever"}
SHORT = timedelta(seconds=1)
LATER = NOON + timedelta(hours=1)
WORKER_FAILS = """
import os, sys, time
print("hello", flush=True)
sys.exit(3) if os.environ["RANK"] == "1" else time.sleep(1000)
"""


async def with_a_failed_worker(world: KubernetesGroups, **options: Any) -> KubernetesBackend:
    """Return a backend with a group whose master runs while its only worker has failed."""
    world.add("program", "python3", "-c", WORKER_FAILS)
    backend = world.open(**options)
    asked = job(instances=2)
    await started(backend, asked)
    await printed(backend, job().group)
    await seen(backend, job().group, lambda o: o.first_failure is not None)
    return backend


def pod(place: Place, name: str) -> dict[str, Any]:
    return place.cluster.get(place.namespace, "pod", name)


async def test_a_failed_worker_is_kept_although_its_master_is_deleted(
    world: KubernetesGroups, place: Place
) -> None:
    backend = await with_a_failed_worker(world)
    # Another object that the master owns: its collection shows when the worker would have been collected.
    canary = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "canary"}}
    place.apply(owned_by(canary, pod(place, "program-1-master")))
    end = await backend.stop(job().group, SHORT, LATER)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED, Phase.FAILED]
    assert end.statuses[1].exit_code == 3
    place.kubectl("wait", "--for=delete", "configmap/canary", "--timeout=240s")
    assert place.left() == ["pod/program-1-1-worker"]
    kept = pod(place, "program-1-1-worker")
    assert kept["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert place.kubectl("logs", "program-1-1-worker") == "hello\n"
    assert place.kubectl("get", "pods", "-l", "training-service/kept", "-o", "name").split() == place.left()
    await backend.sweep(LATER)
    assert place.left() == []


async def test_pods_of_a_success_are_kept_without_their_service(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open()
    await backend.launch(job(instances=2))
    await seen(backend, job().group, lambda o: o.has_ended)
    await backend.stop(job().group, SHORT, LATER)
    assert place.left() == ["pod/program-1-1-worker", "pod/program-1-master"]
    place.kubectl("delete", "pod", "program-1-master")  # a user may remove one; the other stays
    await backend.sweep(LATER - SHORT)
    assert place.left() == ["pod/program-1-1-worker"]
    await backend.sweep(NOON, [job().group])
    assert place.left() == []


@pytest.mark.parametrize(
    "recipe",
    [
        {"image": "nowhere.invalid/nothing:1"},
        {"resources": {"example.com/no-such-device": "1"}},
        {"pod_template": {"spec": {"nodeName": "no-such-node"}}},
    ],
    ids=["no image", "no room", "no node"],
)
async def test_pods_that_never_started_are_not_kept(
    world: KubernetesGroups, place: Place, recipe: dict[str, Any]
) -> None:
    world.add("program", **recipe)
    backend = world.open()
    await backend.launch(job(instances=2))
    await backend.stop(job().group, SHORT, LATER)
    assert place.left() == []


async def test_a_pod_with_a_running_sidecar_is_not_kept(world: KubernetesGroups, place: Place) -> None:
    recipe: Any = world.algorithms["program"].recipes["kubernetes"]
    waits = ["python3", "-c", "import time; time.sleep(1000)"]
    sidecar = {"name": "sidecar", "image": recipe.image, "command": waits}
    world.add("program", pod_template={"spec": {"containers": [sidecar]}})
    backend = world.open()
    await backend.launch(job())
    await seen(backend, job().group, lambda o: o.has_ended)
    await backend.stop(job().group, SHORT, LATER)
    assert place.left() == []


async def test_a_pod_past_its_deadline_may_still_run_and_is_not_kept(
    world: KubernetesGroups, place: Place
) -> None:
    ignore = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(1000)"
    template = {"spec": {"activeDeadlineSeconds": 2, "terminationGracePeriodSeconds": 600}}
    world.add("program", "python3", "-c", ignore, pod_template=template)
    backend = world.open()
    await backend.launch(job())
    await seen(backend, job().group, lambda o: o.first_failure is not None)
    await backend.stop(job().group, SHORT, LATER)
    assert place.left() == []


async def test_a_stop_of_a_killed_service_is_completed_by_the_next(
    world: KubernetesGroups, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await with_a_failed_worker(world)

    async def dies(*_: Any) -> None:
        raise BackendUnavailable("killed")

    monkeypatch.setattr(first.client, "delete", dies)
    with pytest.raises(BackendUnavailable, match="killed"):
        await first.stop(job().group, SHORT, LATER)
    await first.close()
    second = world.open()
    found = (await groups_of(second))[job().group]
    assert found.first_failure is None  # the worker is kept, not missing
    await second.stop(job().group, SHORT, LATER)
    assert place.left() == ["pod/program-1-1-worker"]
    assert await groups_of(second) == {}
    await second.sweep(LATER)
    assert place.left() == []


async def test_other_services_ignore_a_kept_group(world: KubernetesGroups, place: Place) -> None:
    first, second = await with_a_failed_worker(world), world.open()
    assert set(await groups_of(second)) == {job().group}
    await first.stop(job().group, SHORT, LATER)
    while await groups_of(second):  # its watch is delayed only briefly
        await asyncio.sleep(0.05)
    assert place.left() == ["pod/program-1-1-worker"]


async def test_a_group_of_another_store_replaces_kept_pods_of_the_same_names(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open()
    ended = job({"RUN_SECONDS": "0"}, instances=2)
    await backend.launch(ended)
    await seen(backend, job().group, lambda o: o.has_ended)
    await backend.stop(job().group, SHORT, LATER)
    before = {each: place.uid(each) for each in place.left()}
    # Launching the same attempt again, as after a restore from a backup, would run it twice.
    with pytest.raises(LaunchFailed) as refused:
        await backend.launch(ended)
    assert refused.value.diagnosis.category is Category.POD_DELETED
    await backend.launch(replace(ended, submitted_at=NOON + timedelta(days=1)))
    await seen(backend, job().group, lambda o: o.has_ended)
    after = {each: place.uid(each) for each in place.left() if each.startswith("pod")}
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    await backend.stop(job().group, SHORT)
    assert place.left() == []


async def test_users_can_keep_a_pod_for_longer(world: KubernetesGroups, place: Place) -> None:
    backend = world.open()
    for number, until in ((1, "2027-01-01T00:00:00Z"), (2, "2027-01-01"), (3, "for ever")):
        one = replace(job(), id=number)
        await backend.launch(one)
        await seen(backend, one.group, lambda o: o.has_ended)
        await backend.stop(one.group, SHORT, LATER)
        mark = f"training-service/kept-until={until}"
        place.kubectl("annotate", "--overwrite", "pod", f"program-{number}-master", mark)
    await backend.sweep(LATER)
    assert place.left() == ["pod/program-1-master", "pod/program-2-master"]
