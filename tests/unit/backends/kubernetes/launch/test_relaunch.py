"""A repeated launch, as after a restart: no object of an attempt is created twice."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.labels import owned_by
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from job_tracker.domain.policies import Elastic
from tests.support.backends import KubernetesGroups, groups_of, seen
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.jobs import NOON, job, job_of, spec

MASTER, WORKER, OTHER = "program-1-master", "program-1-1-worker", "program-1-2-worker"
NO_GRACE = timedelta(0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def world(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[KubernetesGroups]:
    made = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
    yield made
    await made.end()


async def launch(backend: KubernetesBackend, the_job: Job) -> None:
    await backend.launch(the_job)


async def failure(backend: KubernetesBackend, the_job: Job) -> Diagnosis:
    with pytest.raises(LaunchFailed) as failed:
        await launch(backend, the_job)
    return failed.value.diagnosis


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_lost_master_is_not_recreated(
    world: KubernetesGroups, cluster: FakeCluster, is_away: bool
) -> None:
    backend, asked = world.open(), job(instances=3)
    await launch(backend, asked)
    cluster.run(MASTER, WORKER)
    if is_away:
        await backend.close()
    cluster.delete(MASTER)
    why = await failure(world.open() if is_away else backend, asked)
    assert (why.category, why.retryable, why.rank) == (Category.POD_DELETED, True, 0)
    assert cluster.names() == {WORKER, OTHER}
    assert cluster.asked["POST pods"] == 3


async def test_workers_of_a_lost_master_end_with_the_attempt_before_the_next_begins(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    asked = job(instances=2)
    await launch(world.open(), asked)
    cluster.run(MASTER, WORKER)
    cluster.delete(MASTER)
    backend = world.open()
    await failure(backend, asked)
    await backend.stop(asked.group, NO_GRACE)
    assert cluster.names() == cluster.names("services") == set()
    await launch(backend, replace(asked, attempt=2))
    assert cluster.names() == {"program-1-r1-master", "program-1-r1-1-worker"}


async def test_a_master_that_is_being_deleted_is_neither_awaited_nor_replaced(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    first, asked = world.open(), job(instances=2)
    await first.client.create("pods", world.plan(asked).pods[0])
    cluster.run(MASTER)
    cluster.mark_deleted(MASTER)
    assert (await failure(world.open(), asked)).category is Category.POD_DELETED
    assert cluster.names() == {MASTER}


async def test_missing_workers_are_created_for_an_existing_master(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    first, asked = world.open(), job(instances=3)
    plan = world.plan(asked)
    master = await first.client.create("pods", plan.pods[0])
    await first.client.create("pods", owned_by(plan.pods[1], master))
    uids = {name: cluster.get(name)["metadata"]["uid"] for name in (MASTER, WORKER)}
    await launch(world.open(), asked)
    assert cluster.names() == {MASTER, WORKER, OTHER}
    assert {name: cluster.get(name)["metadata"]["uid"] for name in uids} == uids


async def test_a_worker_deleted_during_the_launch_is_not_recreated(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend, asked = world.open(), job(instances=3)
    await launch(backend, asked)
    cluster.run(MASTER, WORKER)
    cluster.delete(WORKER)
    await seen(backend, asked.group, lambda found: found.first_failure is not None)
    await launch(backend, asked)
    assert cluster.names() == {MASTER, OTHER}
    found = (await groups_of(backend))[asked.group]
    assert found.first_failure is not None
    assert (found.first_failure.category, found.first_failure.rank) == (Category.POD_DELETED, 1)


@pytest.mark.parametrize("gone", [MASTER, OTHER])
async def test_in_a_launched_group_only_restarted_ranks_are_created(
    world: KubernetesGroups, cluster: FakeCluster, gone: str
) -> None:
    asked = job_of(spec(instances=3, elastic=Elastic(min_instances=1)))
    await launch(world.open(), asked)
    cluster.run(MASTER, WORKER, OTHER)
    cluster.end(WORKER, 1)
    backend = world.open()
    found = (await groups_of(backend))[asked.group]
    assert found.first_failure is not None
    again = asked.observed(found.statuses).restarting(1, found.first_failure, NOON)
    cluster.delete(gone)
    if gone == MASTER:
        assert (await failure(world.open(), again)).category is Category.POD_DELETED
        assert cluster.names() == {WORKER, OTHER}
        return
    await launch(world.open(), again)
    assert cluster.names() == {MASTER, WORKER}
    assert cluster.get(WORKER)["metadata"]["annotations"]["training-service/restarts"] == "1"


async def test_a_group_of_an_earlier_configuration_is_adopted_unchanged(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    asked = job(instances=2)
    await launch(world.open(), asked)
    cluster.run(MASTER, WORKER)
    world.add("program", "another", "command")
    backend = world.open()
    await launch(backend, asked)
    assert cluster.asked["POST pods"] == 2
    assert cluster.asked["DELETE pods"] == 0
    assert [rank.phase for rank in (await groups_of(backend))[asked.group].statuses] == [Phase.RUNNING] * 2


async def test_a_partial_group_of_an_earlier_configuration_is_not_completed(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    first, asked = world.open(), job(instances=2)
    await first.client.create("pods", world.plan(asked).pods[0])
    cluster.run(MASTER)
    world.add("program", "another", "command")
    why = await failure(world.open(), asked)
    assert (why.category, why.retryable) == (Category.LAUNCH_FAILED, True)
    assert "configuration" in why.summary
    assert cluster.names() == {MASTER}
    assert cluster.asked["DELETE pods"] == 0


async def test_pods_of_another_stores_job_are_replaced(world: KubernetesGroups, cluster: FakeCluster) -> None:
    asked = job(instances=2)
    await launch(world.open(), replace(asked, submitted_at=NOON - timedelta(days=1)))
    cluster.run(MASTER, WORKER)
    before = {name: cluster.get(name)["metadata"]["uid"] for name in (MASTER, WORKER)}
    await launch(world.open(), asked)
    assert cluster.names() == {MASTER, WORKER}
    assert all(cluster.get(name)["metadata"]["uid"] != uid for name, uid in before.items())


async def test_kept_pods_of_the_same_attempt_are_not_replaced(
    world: KubernetesGroups, cluster: FakeCluster
) -> None:
    backend, asked = world.open(), job()
    await launch(backend, asked)
    cluster.run(MASTER)
    cluster.end(MASTER)
    await seen(backend, asked.group, lambda found: found.has_ended)
    await backend.stop(asked.group, NO_GRACE, keep_until=NOON + timedelta(days=36500))
    assert (await failure(world.open(), asked)).category is Category.POD_DELETED
    assert cluster.asked["POST pods"] == 1 + 1  # the second is refused, because the name is taken
