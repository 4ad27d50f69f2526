"""The output of pods during their grace period, even if they were deleted from outside."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes import stopping
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, seen, text_of
from tests.support.fake_cluster import fake_cluster
from tests.support.jobs import job
from tests.support.patience import PATIENCE

MASTER, WORKER = "program-1-master", "program-1-1-worker"


async def test_the_log_of_a_deleted_or_evicted_pod_is_read_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_REST_SECONDS", PATIENCE)
    async with fake_cluster(tmp_path) as cluster:
        world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
        backend, asked = world.open(), job(instances=2)
        cluster.ends_pods_at_once = False
        cluster.last_words = {MASTER: "saved by the master", WORKER: "saved by the worker"}
        await backend.launch(asked)
        cluster.run(MASTER, WORKER)
        await seen(backend, asked.group, lambda found: found.statuses[1].phase is Phase.RUNNING)
        cluster.mark_deleted(WORKER)
        await seen(backend, asked.group, lambda found: found.eviction is not None)
        stop = asyncio.create_task(backend.stop(asked.group, timedelta(seconds=PATIENCE)))
        async with asyncio.timeout(PATIENCE):
            while cluster.asked["DELETE pods"] < 2:
                await asyncio.sleep(0.01)
        assert await world.spool().waiting() == [asked.group]  # as seen by a service without the group
        assert await backend._spool.waiting() == [], "more is to come"
        for name in (WORKER, MASTER):
            cluster.end(name, 143)
        await stop
        assert await backend._spool.waiting() == [asked.group]
        logs = [await text_of(backend.logs(asked.group, rank)) for rank in (0, 1)]
        await world.end()
    assert logs == ["printed\nsaved by the master\n", "printed\nsaved by the worker\n"]
