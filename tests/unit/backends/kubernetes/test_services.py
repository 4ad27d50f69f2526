"""The Service of a live group: it is recreated if it is deleted from outside."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.kubernetes.cache import WatchTiming
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from tests.support.backends import KubernetesGroups, groups_of, seen
from tests.support.catalog import algorithm_of
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.jobs import job
from tests.support.patience import PATIENCE

MASTER, WORKER, SERVICE = "program-1-master", "program-1-1-worker", "program-1-master-service"
PAIR = job(instances=2)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def world(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[KubernetesGroups]:
    made = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
    yield made
    await made.end()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


def content(service: Any) -> Any:
    metadata = {key: service["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    return {"metadata": metadata, "spec": service["spec"]}


async def launched(world: KubernetesGroups, cluster: FakeCluster, the_job: Job = PAIR, **options: Any) -> Any:
    backend = world.open(**options)
    await groups_of(backend)
    await backend.launch(the_job)
    cluster.run(MASTER, WORKER)
    await seen(backend, the_job.group, lambda found: found.master.status.phase is Phase.RUNNING)
    return backend


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax", "mpi", "horovod"])
async def test_a_deleted_service_is_recreated_unchanged(
    world: KubernetesGroups, cluster: FakeCluster, framework: str
) -> None:
    recipe = {"image": "image:1", "command": ("train",)}
    world.algorithms["program"] = algorithm_of(framework=framework, kubernetes=recipe)
    await launched(world, cluster)
    before = cluster.get(SERVICE, "services")
    cluster.delete(SERVICE, kind="services")
    await until(lambda: SERVICE in cluster.names("services"))
    after = cluster.get(SERVICE, "services")
    assert content(after) == content(before)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_service_deleted_during_downtime_is_recreated(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    await (await launched(world, cluster)).close()
    cluster.delete(SERVICE, kind="services")
    backend = world.open()
    await groups_of(backend)
    await until(lambda: SERVICE in cluster.names("services"))
    await backend.launch(PAIR)  # adopts the Service
    assert [rank.phase for rank in (await groups_of(backend))[PAIR.group].statuses] == [Phase.RUNNING] * 2


async def test_the_next_sweep_recreates_a_service_that_could_not_be_recreated(
    world: KubernetesGroups, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    backend = await launched(world, cluster)
    cluster.forbidden.add("POST services")
    cluster.delete(SERVICE, kind="services")
    await until(lambda: "cannot be recreated" in caplog.text)
    cluster.forbidden.clear()
    await backend.sweep(datetime.now(UTC))
    assert SERVICE in cluster.names("services")


async def test_the_service_of_a_stopped_group_is_not_recreated(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    await backend.stop(PAIR.group, timedelta(0))
    await backend.sweep(datetime.now(UTC))
    assert cluster.names("services") == cluster.names() == set()
    assert cluster.asked["POST services"] == 1


async def test_a_crash_during_an_outage_is_blamed_on_the_missing_service(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    cluster.forbidden.add("POST services")
    cluster.delete(SERVICE, kind="services")
    await until(lambda: cluster.asked["POST services"] == 2)
    cluster.end(WORKER, 1)
    found = await seen(backend, PAIR.group, lambda found: found.first_failure is not None)
    diagnosis = found.first_failure
    assert diagnosis is not None
    assert (diagnosis.category, diagnosis.retryable, diagnosis.rank) == (Category.SERVICE_DELETED, True, 1)
    assert SERVICE in diagnosis.summary
    assert "exited with code 1" in diagnosis.detail
    assert found.statuses[1].exit_code == 1


async def test_a_crash_during_downtime_is_blamed_on_the_missing_service(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    await (await launched(world, cluster)).close()
    cluster.delete(SERVICE, kind="services")
    cluster.end(WORKER, 1)
    diagnosis = (await groups_of(world.open()))[PAIR.group].first_failure
    assert diagnosis is not None
    assert diagnosis.category is Category.SERVICE_DELETED


@pytest.mark.parametrize("seconds", [-20, 120])
async def test_a_crash_outside_the_outage_is_a_crash(
    world: KubernetesGroups, cluster: FakeCluster, seconds: int
) -> None:
    backend = await launched(world, cluster)
    cluster.delete(SERVICE, kind="services")
    await until(lambda: SERVICE in cluster.names("services"))
    cluster.end(WORKER, 1, at=datetime.now(UTC) + timedelta(seconds=seconds))
    found = await seen(backend, PAIR.group, lambda found: found.first_failure is not None)
    assert found.first_failure is not None
    assert found.first_failure.category is Category.CRASHED


async def test_a_crash_with_the_service_present_is_a_crash(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    cluster.end(WORKER, 1)
    found = await seen(backend, PAIR.group, lambda found: found.first_failure is not None)
    assert found.first_failure is not None
    assert found.first_failure.category is Category.CRASHED


async def test_a_service_deleted_with_its_master_is_not_the_cause(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    cluster.delete(MASTER)
    cluster.delete(SERVICE, kind="services")
    cluster.end(WORKER, 1)
    found = await seen(backend, PAIR.group, lambda found: found.statuses[1].phase is Phase.FAILED)
    assert {rank.diagnosis.category for rank in found.ranks if rank.diagnosis} == {
        Category.POD_DELETED,
        Category.CRASHED,
    }
    await backend.sweep(datetime.now(UTC))
    assert cluster.asked["POST services"] == 1


async def test_without_the_right_to_watch_services_they_are_listed(
    world: KubernetesGroups, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.forbidden.add("WATCH services")
    await launched(world, cluster, timing=WatchTiming(first_pause=0.01, longest_pause=0.02))
    cluster.delete(SERVICE, kind="services")
    await until(lambda: SERVICE in cluster.names("services"))
    assert caplog.text.count("the watch of services failed") == 1


async def test_a_job_with_one_instance_needs_no_service(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend, alone = world.open(), replace(PAIR, spec=job().spec)
    await groups_of(backend)
    await backend.launch(alone)
    cluster.run(MASTER)
    cluster.end(MASTER, 1)
    found = await seen(backend, alone.group, lambda found: found.first_failure is not None)
    assert found.first_failure is not None
    assert found.first_failure.category is Category.CRASHED
    await backend.sweep(datetime.now(UTC))
    assert cluster.asked["POST services"] == 0
