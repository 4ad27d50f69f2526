"""The nodes of a real API server: readiness, taints, pods that the scheduler has placed, and outages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from job_tracker.backends.base import Mark
from job_tracker.backends.kubernetes.inventory import NodeInventory
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.machine import Machine
from tests.support import accounts
from tests.support.cluster import Cluster
from tests.support.machines import CPUS, FLAVOR, ClusterMachines

_SECONDS = 100


@pytest.fixture
async def machines(cluster: Cluster, namespace: str) -> AsyncIterator[ClusterMachines]:
    made = ClusterMachines(cluster, namespace)
    yield made
    await made.close()


class Watched:
    """One machine, as an inventory shows it."""

    def __init__(self, inventory: NodeInventory, name: str) -> None:
        self._changes = inventory.machines()
        self._name = name
        self._known: Machine | None = None

    async def until(self, condition: Callable[[Machine], bool]) -> Machine:
        async with asyncio.timeout(_SECONDS):
            while self._known is None or not condition(self._known):
                change = await anext(self._changes)
                if change is not Mark.END_OF_SNAPSHOT and change[0] == self._name:
                    self._known = change[1]
        return self._known

    async def aclose(self) -> None:
        await self._changes.aclose()


def watched(machines: ClusterMachines, name: str = "a") -> "aclosing[Watched]":
    return aclosing(Watched(machines.open(), machines.full_name(name)))


async def test_a_node_that_stops_answering_is_closed_until_it_answers(machines: ClusterMachines) -> None:
    machines.add("a")
    async with watched(machines) as node:
        await node.until(lambda each: each.is_open)
        machines.set_ready("a", False)
        await node.until(lambda each: not each.is_open)
        machines.set_ready("a", True)
        await node.until(lambda each: each.is_open)


async def test_a_node_with_a_taint_that_the_flavor_does_not_tolerate_is_closed(
    machines: ClusterMachines,
) -> None:
    machines.add("a")
    async with watched(machines) as node:
        await node.until(lambda each: each.is_open)
        machines.taint("a", "PreferNoSchedule")
        machines.take("a", 1)
        assert (await node.until(lambda each: each.capacity["cpu"] < 1000 * CPUS)).is_open
        machines.taint("a", "NoExecute")
        await node.until(lambda each: not each.is_open)


def own_pod(machines: ClusterMachines, number: int, node: str, **annotations: str) -> dict[str, Any]:
    full = machines.full_name(node)
    labels = {
        "app.kubernetes.io/managed-by": "training-service",
        "app.kubernetes.io/instance": "training-service",
    }
    container = {"name": "training", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": f"own-{number}", "labels": labels, "annotations": annotations}
    spec = {"nodeName": full, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_only_pods_that_the_planner_counts_there_leave_the_capacity_as_it_is(
    machines: ClusterMachines,
) -> None:
    machines.add("a")
    full = machines.full_name("a")
    planned = {"training-service/flavor": FLAVOR, "training-service/node": full}
    elsewhere = {**planned, "training-service/node": "other"}
    earlier = {**planned, "training-service/flavor": "earlier"}
    pods = [own_pod(machines, 1, "a", **planned), own_pod(machines, 2, "a")]
    pods += [own_pod(machines, 3, "a", **elsewhere), own_pod(machines, 4, "a", **earlier)]
    machines.cluster.apply(machines.namespace, *pods)
    async with watched(machines) as node:
        found = await node.until(lambda each: each.capacity["cpu"] == 1000 * (CPUS - 3))
        assert found.capacity["instances"] == found.most["instances"] - 3


async def test_a_node_whose_labels_change_leaves_its_flavor(machines: ClusterMachines) -> None:
    machines.add("a")
    machines.add("b")
    async with watched(machines) as node:
        await node.until(lambda each: each.is_open)
        label = f"{machines.label}-"
        machines.cluster.kubectl("label", "node", machines.full_name("a"), label)
        async with asyncio.timeout(_SECONDS):
            async with aclosing(machines.open().machines()) as changes:
                names = []
                async for change in changes:
                    if change is Mark.END_OF_SNAPSHOT:
                        break
                    names.append(change[0])
        assert names == [machines.full_name("b")]


async def test_after_an_outage_of_the_api_server_the_nodes_are_followed_again(
    machines: ClusterMachines,
) -> None:
    machines.add("a")
    async with watched(machines) as node:
        await node.until(lambda each: each.is_open)
        with machines.cluster.stopped("apiserver"):
            await asyncio.sleep(1)  # the watches break off
        machines.take("a", 2)
        await node.until(lambda each: each.capacity["cpu"] == 1000 * (CPUS - 2))


RIGHTS = [("list", "nodes"), ("watch", "nodes"), ("list", "pods"), ("watch", "pods")]


@pytest.mark.parametrize("missing", [("list", "nodes"), ("list", "pods")], ids=" ".join)
async def test_a_missing_right_is_refused_with_what_to_do(
    machines: ClusterMachines, tmp_path: Any, missing: tuple[str, str]
) -> None:
    cluster, namespace = machines.cluster, machines.namespace
    cluster.apply(namespace, *accounts.account("reader", []))
    rights = [each for each in RIGHTS if each != missing]
    cluster.apply("default", *accounts.cluster_role(namespace, "reader", namespace, rights))
    try:
        token = accounts.token(cluster, namespace, "reader")
        kubeconfig = accounts.kubeconfig(cluster, tmp_path / "kubeconfig", token)
        settings = machines.settings().model_copy(update={"kubeconfig": kubeconfig})
        inventory = NodeInventory(settings, [FLAVOR])
        with pytest.raises(BackendRefused, match="deploy/optional/followed-nodes") as refused:
            await inventory.check()
        await inventory.close()
        assert f'cannot {missing[0]} resource "{missing[1]}"' in str(refused.value)
    finally:
        cluster.kubectl("delete", f"clusterrole/{namespace}", f"clusterrolebinding/{namespace}")
