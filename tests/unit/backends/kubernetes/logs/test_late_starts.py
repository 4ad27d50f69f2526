"""Logs of ranks that start only while their group is being stopped."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.base import Backend
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, seen, text_of
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.jobs import job
from tests.support.patience import PATIENCE

MASTER, WORKER = "program-1-master", "program-1-1-worker"
ASKED = job(instances=2)


async def test_the_log_of_a_rank_that_starts_while_other_logs_are_read_is_kept(tmp_path: Path) -> None:
    async with fake_cluster(tmp_path) as cluster:
        world, backend = await _with_ended_master(cluster, tmp_path)
        cluster.gives_logs.clear()
        stop = asyncio.create_task(backend.stop(ASKED.group, timedelta(seconds=10)))
        async with asyncio.timeout(PATIENCE):
            while not cluster.asked["GET log"]:
                await asyncio.sleep(0.01)
        cluster.run(WORKER)
        cluster.end(WORKER)
        await seen(backend, ASKED.group, lambda found: found.statuses[1].phase is Phase.SUCCEEDED)
        cluster.gives_logs.set()
        await stop
        assert await text_of(backend.logs(ASKED.group, 1)) == "printed\n"
        await world.end()


async def test_the_log_of_a_rank_that_starts_when_its_pod_is_deleted_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_cluster(tmp_path) as cluster:
        world, backend = await _with_ended_master(cluster, tmp_path)
        monkeypatch.setattr(cluster, "end_pod", lambda name: _start_late(cluster, name))
        await backend.stop(ASKED.group, timedelta(seconds=10))
        assert await text_of(backend.logs(ASKED.group, 1)) == "printed\n"
        await world.end()


async def _with_ended_master(cluster: FakeCluster, folder: Path) -> tuple[KubernetesGroups, Backend]:
    """Launch a group whose master has ended, and whose worker has not started yet."""
    world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", folder / "logs")
    backend = world.open()
    await backend.launch(ASKED)
    cluster.run(MASTER)
    cluster.end(MASTER)
    await seen(backend, ASKED.group, lambda found: found.statuses[0].phase is Phase.SUCCEEDED)
    return world, backend


def _start_late(cluster: FakeCluster, name: str) -> None:
    """Let the node start and end the worker before it learns of the deletion. The pod is not gone yet."""
    if name == WORKER:
        cluster.run(WORKER)
        cluster.end(WORKER)
        cluster.mark_deleted(WORKER)
    else:
        cluster.delete(name)
