"""Logs of ranks that have ended, from an API server that is slow to give them."""

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


@pytest.mark.parametrize("has_time", [True, False])
async def test_the_log_of_an_ended_rank_has_more_time_than_that_of_a_silent_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_time: bool
) -> None:
    monkeypatch.setattr(stopping, "_LOG_SECONDS", 0.05)
    monkeypatch.setattr(stopping, "_ENDED_LOG_SECONDS", 30.0 if has_time else 0.1)
    async with fake_cluster(tmp_path) as cluster:
        world = KubernetesGroups(cluster.kubeconfig, "here", "image:1", tmp_path / "logs")
        backend, asked = world.open(), job(instances=2)
        await backend.launch(asked)
        cluster.run(MASTER, WORKER)
        cluster.gives_logs.clear()
        for name in (MASTER, WORKER):
            cluster.end(name, 0)
        await seen(backend, asked.group, lambda found: found.statuses[1].phase is Phase.SUCCEEDED)
        before = cluster.asked["GET log"]
        stop = asyncio.create_task(backend.stop(asked.group, timedelta(seconds=1)))
        if has_time:
            async with asyncio.timeout(PATIENCE):
                while cluster.asked["GET log"] < before + 2:
                    await asyncio.sleep(0.01)
            done, _ = await asyncio.wait([stop], timeout=0.1)
            assert not done, "it waits for longer than for a silent node"
            cluster.gives_logs.set()
        await stop
        cluster.gives_logs.set()
        lost = "the logs of ranks 0, 1 of group program-1 are lost" in caplog.text
        assert lost is not has_time
        if has_time:
            assert [await text_of(backend.logs(asked.group, rank)) for rank in (0, 1)] == ["printed\n"] * 2
        await world.end()
