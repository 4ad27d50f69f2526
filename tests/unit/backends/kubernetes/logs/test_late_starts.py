"""Logs of ranks that start only while their group is being stopped."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, seen, text_of
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.jobs import job

MASTER, WORKER = "program-1-master", "program-1-1-worker"


async def test_the_log_of_a_rank_that_starts_while_other_logs_are_read_is_kept(tmp_path: Path) -> None:
    async with fake_cluster(tmp_path) as cluster:
        world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
        backend, asked = world.open(), job(instances=2)
        await backend.launch(asked)
        cluster.run(MASTER)
        cluster.end(MASTER)
        await seen(backend, asked.group, lambda found: found.statuses[0].phase is Phase.SUCCEEDED)
        cluster.gives_logs.clear()
        stop = asyncio.create_task(backend.stop(asked.group, timedelta(seconds=10)))
        async with asyncio.timeout(30):
            while not cluster.asked["GET log"]:
                await asyncio.sleep(0.01)
        cluster.run(WORKER)
        cluster.end(WORKER)
        await seen(backend, asked.group, lambda found: found.statuses[1].phase is Phase.SUCCEEDED)
        cluster.gives_logs.set()
        await stop
        assert await text_of(backend.logs(asked.group, 1)) == "printed\n"
        await world.end()


async def test_the_log_of_a_rank_that_starts_when_its_pod_is_deleted_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_cluster(tmp_path) as cluster:
        world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
        backend, asked = world.open(), job(instances=2)
        await backend.launch(asked)
        cluster.run(MASTER)
        cluster.end(MASTER)
        await seen(backend, asked.group, lambda found: found.statuses[0].phase is Phase.SUCCEEDED)
        monkeypatch.setattr(cluster, "end_pod", lambda name: _start_late(cluster, name))
        await backend.stop(asked.group, timedelta(seconds=10))
        assert await text_of(backend.logs(asked.group, 1)) == "printed\n"
        await world.end()


def _start_late(cluster: FakeCluster, name: str) -> None:
    """Let the node start and end the worker before it learns of the deletion. The pod is not gone yet."""
    if name == WORKER:
        cluster.run(WORKER)
        cluster.end(WORKER)
        cluster.mark_deleted(WORKER)
    else:
        cluster.delete(name)
