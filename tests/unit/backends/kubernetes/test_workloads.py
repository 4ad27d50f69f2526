"""Groups on a cluster with a stand-in for Kueue: they wait, start, lose their place, and leave nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.base import Mark, Observation
from job_tracker.backends.kubernetes import stopping
from job_tracker.backends.kubernetes.api_errors import Unreachable
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.client import Patience
from job_tracker.backends.kubernetes.kueue import KueueMarks
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.eviction import EvictionReason
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from tests.support.backends import KubernetesGroups
from tests.support.fake_cluster import FakeCluster, Object, fake_cluster
from tests.support.jobs import job
from tests.support.kueue import Kueue
from tests.support.patience import PATIENCE

PAIR = job(instances=2)
GROUP, MASTER, WORKER = "program-1", "program-1-master", "program-1-1-worker"
SECOND = timedelta(seconds=1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


@pytest.fixture
def kueue(cluster: FakeCluster) -> Kueue:
    return Kueue(cluster, default=1)


@pytest.fixture
async def world(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[KubernetesGroups]:
    made = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
    yield made
    await made.end()


@pytest.fixture
async def backend(world: KubernetesGroups) -> KubernetesBackend:
    return opened(world)


def opened(world: KubernetesGroups) -> KubernetesBackend:
    return world.open(marks=KueueMarks(), workload_seconds=0.05, image_pull_grace=1)


async def until(
    backend: KubernetesBackend, condition: Callable[[Observation], bool], of: Job = PAIR
) -> Observation:
    """Return the first observation of the group that meets the condition."""
    async with aclosing(backend.watch()) as watch:
        async for change in watch:
            if not isinstance(change, Mark) and change[0] == of.group and condition(change[1]):
                return change[1]
    raise AssertionError("the watch has ended")


async def until_deleted(cluster: FakeCluster, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while "deletionTimestamp" not in cluster.get(name)["metadata"]:
            await asyncio.sleep(0.01)


def says(text: str) -> Callable[[Observation], bool]:
    return lambda seen: text in seen.master.status.note


def starts(seen: Observation) -> bool:
    return not any(rank.is_gated for rank in seen.statuses)


def left(cluster: FakeCluster) -> set[str]:
    return cluster.names() | cluster.names("workloads") | cluster.names("services")


async def test_a_group_waits_for_its_quota_and_then_starts(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    seen = await backend.launch(PAIR)
    assert [rank.is_gated for rank in seen.statuses] == [True, True]
    await until(backend, says("not QuotaReserved (Pending): couldn't assign flavors to pod set main"))
    kueue.admit("default", 2)
    await until(backend, starts)
    cluster.run(MASTER, WORKER)
    cluster.end(MASTER)
    cluster.end(WORKER)
    seen = await until(backend, lambda seen: seen.has_ended)
    assert [rank.phase for rank in seen.statuses] == [Phase.SUCCEEDED] * 2
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_a_group_that_is_stopped_while_it_runs_ends_for_kueue_too(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 2)
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()
    assert cluster.asked["DELETE workloads"] == 0, "Kueue finishes it by itself"


async def test_an_unknown_local_queue_is_named_until_it_exists(
    backend: KubernetesBackend, kueue: Kueue
) -> None:
    del kueue.quotas["default"]
    await backend.launch(PAIR)
    await until(backend, says("LocalQueue default doesn't exist"))
    kueue.admit("default", 2)
    await until(backend, starts)


async def test_a_group_that_never_ran_gives_up_its_place(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    await backend.launch(PAIR)
    assert kueue.conditions(GROUP) == {"QuotaReserved": "False"}
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_a_workload_of_another_that_has_the_name_is_left_alone(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_FORCED_SECONDS", 0.1)
    kueue.go(webhook=True)  # Kueue refuses the group, and releases the deleted pods later
    cluster.put("workloads", {"metadata": {"name": GROUP, "ownerReferences": [{"uid": "other"}]}})
    await backend.launch(PAIR)
    await until(backend, says("Kueue has made no Workload"))
    with pytest.raises(BackendUnavailable):
        await backend.stop(PAIR.group, SECOND)
    assert cluster.names("workloads") == {GROUP}


async def test_without_kueue_no_pod_starts_and_the_note_says_so(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    await backend.launch(PAIR)
    await until(backend, says("Kueue does not manage the pod"))
    assert all(cluster.get(name)["spec"]["schedulingGates"] for name in (MASTER, WORKER))
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_a_cluster_that_drops_the_gates_is_named(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    def drop(pod: Object) -> str:
        pod["spec"].pop("schedulingGates", None)
        return ""

    cluster.webhook = drop
    with pytest.raises(LaunchFailed, match="does not know scheduling gates"):
        await backend.launch(PAIR)
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


@pytest.mark.usefixtures("kueue")
async def test_a_group_shows_how_many_wait_before_it(backend: KubernetesBackend) -> None:
    second = job(job_id=2, instances=2)
    await backend.launch(PAIR)
    await until(backend, says("LocalQueue default, first in its ClusterQueue: not QuotaReserved"))
    await backend.launch(second)
    note = "LocalQueue default, after 1 other in its ClusterQueue, 1 of them in this LocalQueue: not Quota"
    await until(backend, says(note), second)


@pytest.mark.usefixtures("kueue")
async def test_where_places_may_not_be_read_they_are_left_out(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.forbidden.add("GET pendingworkloads")
    await backend.launch(PAIR)
    await until(backend, says("LocalQueue default: not QuotaReserved"))
    for _ in range(3):
        before = cluster.asked["GET workloads"]
        while cluster.asked["GET workloads"] == before:
            await asyncio.sleep(0.01)
    assert cluster.asked["GET pendingworkloads"] == 1


async def test_a_missing_right_to_read_workloads_is_named(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    cluster.forbidden = {"GET workloads"}
    await backend.launch(PAIR)
    await until(backend, says("deploy/optional/kueue"))
    kueue.admit("default", 2)
    await until(backend, starts)


@pytest.mark.parametrize("kind", ["preempted", "deactivated", "workload deleted"])
async def test_what_kueue_stops_is_evicted_whether_it_runs_or_not(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue, kind: str
) -> None:
    kueue.admit("default", 2)
    cluster.ends_pods_at_once = False
    await backend.launch(PAIR)
    cluster.run(MASTER)  # the worker has no node yet
    match kind:
        case "preempted":
            kueue.evict(GROUP)
        case "deactivated":
            kueue.deactivate(GROUP)
        case _:
            cluster.delete(GROUP, kind="workloads")
    seen = await until(backend, lambda seen: seen.eviction is not None)
    assert seen.eviction is not None
    assert seen.eviction.why is EvictionReason.CLUSTER_QUEUE
    assert seen.first_failure is None
    if MASTER in cluster.names():
        cluster.end(MASTER, 143)
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_what_kueue_stops_while_the_service_is_away_is_evicted(
    world: KubernetesGroups, backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 2)
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)
    await backend.close()
    kueue.evict(GROUP)
    for name in (MASTER, WORKER):
        cluster.end(name, 143)
    another = opened(world)
    seen = await until(another, lambda seen: seen.eviction is not None)
    assert [rank.exit_code for rank in seen.statuses] == [143, 143]
    await another.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_a_waiting_group_whose_workload_is_deleted_is_evicted(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    await backend.launch(PAIR)
    await until(backend, says("not QuotaReserved"))
    cluster.delete(GROUP, kind="workloads")
    seen = await until(backend, lambda seen: seen.eviction is not None)
    assert seen.eviction is not None
    assert "Workload is deleted" in seen.eviction.detail
    assert seen.first_failure is None
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_kueue_may_evict_what_is_being_stopped(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 2)
    cluster.ends_pods_at_once = False
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)
    stop = asyncio.create_task(backend.stop(PAIR.group, SECOND))
    await until_deleted(cluster, MASTER)
    kueue.evict(GROUP)
    for name in (MASTER, WORKER):
        cluster.end(name, 143)
    seen = await stop
    assert seen is not None
    assert [rank.exit_code for rank in seen.statuses] == [143, 143]
    assert left(cluster) == set()


@pytest.mark.parametrize("runs", [True, False])
async def test_while_kueue_is_away_a_stop_waits_for_it_and_says_so(
    backend: KubernetesBackend,
    cluster: FakeCluster,
    kueue: Kueue,
    monkeypatch: pytest.MonkeyPatch,
    runs: bool,
) -> None:
    monkeypatch.setattr(stopping, "_FORCED_SECONDS", 0.1)
    monkeypatch.setattr(backend.client, "_patience", Patience(total_seconds=0.1, first_pause=0.02))
    kueue.admit("default", 2 if runs else 1)
    await backend.launch(PAIR)
    if runs:
        cluster.run(MASTER, WORKER)
    kueue.go()
    with pytest.raises(BackendUnavailable, match="Kueue has not removed its finalizers"):
        await backend.stop(PAIR.group, SECOND)
    for name in (MASTER, WORKER):
        assert "deletionTimestamp" in cluster.get(name)["metadata"]
    kueue.come()
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_while_its_webhook_is_away_a_launch_is_to_be_repeated(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.client, "_patience", Patience(total_seconds=0.1, first_pause=0.02))
    kueue.go()
    with pytest.raises(BackendUnavailable, match="failed calling webhook"):
        await backend.launch(PAIR)
    assert cluster.names() == set()
    kueue.come()
    await backend.launch(PAIR)
    await until(backend, says("not QuotaReserved"))


async def test_a_repeated_launch_adopts_the_pods_that_wait(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    await backend.launch(PAIR)
    uids = {name: cluster.get(name)["metadata"]["uid"] for name in cluster.names()}
    assert kueue.conditions(GROUP)
    await backend.launch(PAIR)
    assert {name: cluster.get(name)["metadata"]["uid"] for name in cluster.names()} == uids


async def test_a_lost_node_does_not_hold_a_group_for_ever(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue waits for the end of the pods, but no node reports it any more."""
    monkeypatch.setattr(stopping, "_KUBELET_SECONDS", 0.1)
    kueue.admit("default", 2)
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)
    cluster.ends_pods_at_once = False
    await backend.stop(PAIR.group, timedelta(0))
    assert left(cluster) == set()


async def test_while_its_webhook_hangs_processes_are_stopped(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service gives up before the API server does, so it does not see that a webhook is the cause."""
    kueue.admit("default", 2)
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)

    async def unanswered(*_: object) -> None:
        raise Unreachable(0, "Timeout", "no answer")

    monkeypatch.setattr(backend.client, "change", unanswered)
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()


async def test_a_group_without_kueue_that_may_not_be_marked_is_not_looked_for_in_kueue(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    plain = world.open()
    await plain.launch(PAIR)
    cluster.forbidden.add("PATCH pods")
    await plain.stop(PAIR.group, SECOND)
    assert cluster.asked["GET workloads"] == 0
    assert left(cluster) == set()


async def test_a_kept_group_that_could_not_be_marked_ends_for_kueue_all_the_same(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The webhook of Kueue is away for a moment, and back when the pods are kept."""
    kueue.admit("default", 2)
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)
    cluster.end(MASTER, 1)
    cluster.end(WORKER, 1)
    await until(backend, lambda seen: seen.has_ended)
    change, calls = backend.client.change, list[str]()

    async def away_at_first(resource: Any, name: str, *rest: Any) -> Any:
        calls.append(name)
        if len(calls) == 1:
            raise Unreachable(0, "Timeout", "no answer")
        return await change(resource, name, *rest)

    monkeypatch.setattr(backend.client, "change", away_at_first)
    await backend.stop(PAIR.group, SECOND, datetime.now(UTC) + timedelta(hours=1))
    assert cluster.names() == {MASTER, WORKER}, "they are kept"
    assert kueue.conditions(GROUP).get("Finished") == "True"
    assert not any(cluster.get(name)["metadata"].get("finalizers") for name in cluster.names())


async def test_a_mark_of_an_earlier_version_is_completed_for_kueue(
    backend: KubernetesBackend, cluster: FakeCluster, kueue: Kueue
) -> None:
    kueue.admit("default", 2)
    await backend.launch(PAIR)
    cluster.run(MASTER, WORKER)
    mark = {"training-service/stopping": "2026-11-26T10:00:00+00:00"}
    cluster.change("pods", MASTER, lambda found: found["metadata"]["annotations"].update(mark))
    await backend.stop(PAIR.group, SECOND)
    assert left(cluster) == set()
