"""The Service of a group while the group lives: one that is deleted from outside is made again."""

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
    async with asyncio.timeout(30):
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
async def test_a_service_that_was_deleted_is_made_again_as_it_was(
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


async def test_one_that_was_deleted_while_the_service_was_away_is_made_again(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    await (await launched(world, cluster)).close()
    cluster.delete(SERVICE, kind="services")
    backend = world.open()
    await groups_of(backend)
    await until(lambda: SERVICE in cluster.names("services"))
    await backend.launch(PAIR)  # takes it for its own
    assert [rank.phase for rank in (await groups_of(backend))[PAIR.group].statuses] == [Phase.RUNNING] * 2


async def test_one_that_could_not_be_made_again_is_tried_for_at_the_next_sweep(
    world: KubernetesGroups, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    backend = await launched(world, cluster)
    cluster.forbidden.add("POST services")
    cluster.delete(SERVICE, kind="services")
    await until(lambda: "cannot be made again" in caplog.text)
    cluster.forbidden.clear()
    await backend.sweep(datetime.now(UTC))
    assert SERVICE in cluster.names("services")


async def test_the_service_of_a_group_that_is_stopped_stays_away(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    await backend.stop(PAIR.group, timedelta(0))
    await backend.sweep(datetime.now(UTC))
    assert cluster.names("services") == cluster.names() == set()
    assert cluster.asked["POST services"] == 1


async def test_a_rank_that_crashed_without_the_service_is_not_blamed(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    cluster.forbidden.add("POST services")
    cluster.delete(SERVICE, kind="services")
    await until(lambda: cluster.asked["POST services"] == 2)
    cluster.end(WORKER, 1)
    found = await seen(backend, PAIR.group, lambda found: found.first_failure is not None)
    why = found.first_failure
    assert why is not None
    assert (why.category, why.retryable, why.rank) == (Category.SERVICE_DELETED, True, 1)
    assert SERVICE in why.summary
    assert "exited with code 1" in why.detail
    assert found.statuses[1].exit_code == 1


async def test_nor_is_one_that_crashed_while_we_were_away(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    await (await launched(world, cluster)).close()
    cluster.delete(SERVICE, kind="services")
    cluster.end(WORKER, 1)
    why = (await groups_of(world.open()))[PAIR.group].first_failure
    assert why is not None
    assert why.category is Category.SERVICE_DELETED


@pytest.mark.parametrize("seconds", [-20, 120])
async def test_a_crash_at_another_time_is_a_crash(
    world: KubernetesGroups, cluster: FakeCluster, seconds: int
) -> None:
    backend = await launched(world, cluster)
    cluster.delete(SERVICE, kind="services")
    await until(lambda: SERVICE in cluster.names("services"))
    cluster.end(WORKER, 1, at=datetime.now(UTC) + timedelta(seconds=seconds))
    found = await seen(backend, PAIR.group, lambda found: found.first_failure is not None)
    assert found.first_failure is not None
    assert found.first_failure.category is Category.CRASHED


async def test_a_crash_beside_a_service_that_is_there_is_a_crash(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend = await launched(world, cluster)
    cluster.end(WORKER, 1)
    found = await seen(backend, PAIR.group, lambda found: found.first_failure is not None)
    assert found.first_failure is not None
    assert found.first_failure.category is Category.CRASHED


async def test_when_the_master_is_deleted_its_service_goes_with_it_and_is_not_the_cause(
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


async def test_a_job_of_one_instance_has_no_service_and_misses_none(
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
