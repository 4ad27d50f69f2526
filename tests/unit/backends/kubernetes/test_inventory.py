"""The machines of a simulated API server. tests/contract tests the contract, also on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.base import Mark
from job_tracker.backends.kubernetes.cache import WatchTiming
from job_tracker.backends.kubernetes.client import Patience
from job_tracker.backends.kubernetes.inventory import NodeInventory
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.machine import Machine
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.patience import PATIENCE

QUICK = WatchTiming(silence=30.0, first_pause=0.01, longest_pause=0.05)
FLAVORS = {"a100": {"node_selector": {"gpu": "a100"}}, "t4": {"node_selector": {"gpu": "t4"}}}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(tmp_path) as made:
        yield made


class Reader:
    """An inventory, and the state that it has reported."""

    def __init__(self, api: FakeCluster, *followed: str) -> None:
        values = {"kubeconfig": str(api.kubeconfig), "namespace": "ours", "flavors": FLAVORS}
        settings = KubernetesSettings.model_validate(values)
        self.inventory = NodeInventory(settings, followed or ("a100",), QUICK)
        self._changes = self.inventory.machines()
        self.known: dict[str, Machine] = {}

    async def until(self, condition: Callable[[dict[str, Machine]], bool]) -> dict[str, Machine]:
        async with asyncio.timeout(PATIENCE):
            while True:
                change = await anext(self._changes)
                if change is not Mark.END_OF_SNAPSHOT:
                    name, machine = change
                    self.known = {key: each for key, each in self.known.items() if key != name}
                    if machine is not None:
                        self.known[name] = machine
                elif self.known:
                    continue
                if condition(self.known):
                    return self.known

    async def close(self) -> None:
        await self._changes.aclose()
        await self.inventory.close()


@pytest.fixture
async def reader(api: FakeCluster) -> AsyncIterator[Reader]:
    made = Reader(api)
    yield made
    await made.close()


def node(name: str, gpu: str = "a100", cpu: str = "8") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"gpu": gpu, "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": cpu, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str, cpu: str = "1", *, ours: bool = False, planned: str = "") -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "training-service"} if ours else {}
    labels |= {"app.kubernetes.io/instance": "training-service"} if ours else {}
    chosen = {"training-service/flavor": planned, "training-service/node": on} if planned else {}
    container = {"name": "x", "resources": {"requests": {"cpu": cpu}}}
    namespace = "ours" if ours else "theirs"
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": chosen},
        "spec": {"nodeName": on, "containers": [container]},
    }


def free(known: dict[str, Machine], name: str = "n1") -> int:
    return known[name].capacity["cpu"] if name in known else -1


async def test_pods_of_others_count_and_planned_ones_do_not(api: FakeCluster, reader: Reader) -> None:
    api.put("pods", pod("other", "n1", "2"))
    api.put("pods", pod("planned", "n1", "3", ours=True, planned="a100"))
    api.put("pods", pod("unplanned", "n1", "500m", ours=True))
    api.put("nodes", node("n1"))
    known = await reader.until(lambda known: free(known) == 5500)
    assert known["n1"].capacity["instances"] == 108
    api.delete("other")
    await reader.until(lambda known: free(known) == 7500)


async def test_a_planned_pod_counts_when_its_node_changes_to_another_flavor(api: FakeCluster) -> None:
    reader = Reader(api, "a100", "t4")
    api.put("nodes", node("n1"))
    api.put("pods", pod("planned", "n1", "3", ours=True, planned="a100"))
    await reader.until(lambda known: free(known) == 8000)
    api.put("nodes", node("n1", "t4"))
    known = await reader.until(lambda known: free(known) == 5000)
    assert known["n1"].flavor == "t4"
    await reader.close()


async def test_a_node_of_a_flavor_that_is_not_followed_is_left_out(api: FakeCluster, reader: Reader) -> None:
    api.put("nodes", node("n1"))
    api.put("nodes", node("n2", "t4"))
    assert (await reader.until(lambda known: "n1" in known)).keys() == {"n1"}
    api.put("nodes", node("n1", "t4"))
    await reader.until(lambda known: not known)


async def test_a_watch_that_breaks_off_is_continued(api: FakeCluster, reader: Reader) -> None:
    api.put("nodes", node("n1"))
    await reader.until(lambda known: free(known) == 8000)
    api.end_watches()
    api.put("pods", pod("other", "n1", "2"))
    await reader.until(lambda known: free(known) == 6000)


async def test_a_change_that_changes_nothing_for_jobs_is_not_passed_on(
    api: FakeCluster, reader: Reader
) -> None:
    api.put("nodes", node("n1"))
    await reader.until(lambda known: free(known) == 8000)
    heartbeat = node("n1")
    heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-21T12:00:00Z"
    api.put("nodes", heartbeat)
    api.put("nodes", node("n1", cpu="4"))
    known = await reader.until(lambda _: True)  # the next change
    assert free(known) == 4000


@pytest.mark.parametrize("request_kind", ["LIST pods", "LIST nodes"])
async def test_a_missing_right_is_refused(api: FakeCluster, reader: Reader, request_kind: str) -> None:
    api.forbidden.add(request_kind)
    with pytest.raises(BackendRefused, match="the capacity of a100 follows the nodes"):
        await reader.inventory.check()


async def test_an_api_server_that_does_not_answer_is_tried_again(api: FakeCluster, tmp_path: Path) -> None:
    text = api.kubeconfig.read_text()
    api.kubeconfig.write_text(text.replace("http://127.0.0.1:", "http://127.0.0.2:1"))
    reader = Reader(api)
    inventory = reader.inventory
    inventory._client._patience = Patience(try_seconds=0.2, total_seconds=0.2)
    await inventory.check()
    await reader.close()
