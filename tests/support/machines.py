"""Machines of each kind of backend that has an Inventory. Tests change the machines from outside."""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from job_tracker.backends.base import Inventory
from job_tracker.backends.fake import FakeBackend, FakeMachine, FakeWorld
from job_tracker.backends.kubernetes.inventory import NodeInventory
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.domain.group import Place
from tests.support.cluster import Cluster, CommandFailed

FLAVOR = "big"
CPUS, GPUS, PODS = 8, 4, 10
"""The resources of each machine."""
_RENEWAL_SECONDS = 2.0
_LABEL = "training-service.test/machines"
_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"


class Machines(Protocol):
    """The machines of a test. All of them have the flavor FLAVOR."""

    def open(self) -> Inventory:
        """Open another inventory, as another service does."""
        ...

    async def close(self) -> None:
        """Close all inventories, and remove the machines."""
        ...

    def add(self, name: str, *, zone: str = "") -> None:
        """Add a machine."""
        ...

    def remove(self, name: str) -> None:
        """Remove a machine."""
        ...

    def set_open(self, name: str, is_open: bool) -> None:
        """Close a machine for new instances, or open it again."""
        ...

    def take(self, name: str, cpus: int, *, stays: bool = False) -> None:
        """Let other programs take CPUs of a machine. With `stays`, they never give these CPUs back."""
        ...

    def give_back(self, name: str) -> None:
        """End the other programs on a machine, except those that stay."""
        ...

    def full_name(self, name: str) -> str:
        """Return the name of a machine in the engine."""
        ...


class FakeMachines:
    """Machines of the fake backend."""

    def __init__(self) -> None:
        self.world = FakeWorld()

    def open(self) -> FakeBackend:
        return FakeBackend(self.world)

    async def close(self) -> None:
        self.world.close()

    def add(self, name: str, *, zone: str = "") -> None:
        offers = {"instances": PODS, "cpu": 1000 * CPUS, "nvidia.com/gpu": GPUS}
        places = {Place.MACHINE: name, **({Place.ZONE: zone} if zone else {})}
        self.world.put_machine(name, FakeMachine(flavor=FLAVOR, offers=offers, places=places))

    def remove(self, name: str) -> None:
        self.world.put_machine(name, None)

    def set_open(self, name: str, is_open: bool) -> None:
        self._change(name, is_open=is_open)

    def take(self, name: str, cpus: int, *, stays: bool = False) -> None:
        amounts = {"instances": 1, "cpu": 1000 * cpus}
        self._change(name, **{"stays" if stays else "taken": amounts})

    def give_back(self, name: str) -> None:
        self._change(name, taken={})

    def full_name(self, name: str) -> str:
        return name

    def _change(self, name: str, **fields: Any) -> None:
        self.world.put_machine(name, replace(self.world.machines[name], **fields))


class ClusterMachines:
    """Nodes in an API server, without kubelets. No other test uses their names and labels.

    A thread renews the nodes' leases. Otherwise, the controller manager would take them for lost after 20 s
    (tests/cluster/debian/parts.sh), and no kubelet would set them to Ready again.
    """

    label = _LABEL

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._opened: list[NodeInventory] = []
        self._nodes: list[str] = []
        self._leases: dict[str, dict[str, Any]] = {}
        self._ending = threading.Event()
        self._renewing = threading.Thread(target=self._renew_leases, name="leases of nodes")
        self._pods = 0

    def settings(self) -> KubernetesSettings:
        toleration = {"key": _LABEL, "operator": "Exists"}
        flavor = {"node_selector": {_LABEL: self.namespace}, "tolerations": [toleration]}
        return KubernetesSettings.model_validate(
            {
                "kubeconfig": str(self.cluster.kubeconfig),
                "namespace": self.namespace,
                "flavors": {FLAVOR: flavor, "others": {}},
            }
        )

    def open(self) -> NodeInventory:
        opened = NodeInventory(self.settings(), [FLAVOR])
        self._opened.append(opened)
        return opened

    async def close(self) -> None:
        self._ending.set()
        if self._renewing.is_alive():
            self._renewing.join()
        for opened in self._opened:
            await opened.close()
        if self._nodes:
            self.cluster.kubectl("delete", "node", *self._nodes, "--ignore-not-found", "--wait=false")

    def add(self, name: str, *, zone: str = "") -> None:
        full = self.full_name(name)
        offers = {"cpu": str(CPUS), "nvidia.com/gpu": str(GPUS), "pods": str(PODS), "memory": "8Gi"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": full,
                "labels": {_LABEL: self.namespace, _HOST: full, **({_ZONE: zone} if zone else {})},
            },
            # The taint keeps away pods of other tests.
            "spec": {"taints": [{"key": _LABEL, "value": "x", "effect": "NoSchedule"}]},
            "status": {
                "capacity": offers,
                "allocatable": offers,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        self._nodes.append(full)
        uid = self.cluster.kubectl(
            "create", "-f", "-", "-o", "jsonpath={.metadata.uid}", stdin=json.dumps(node)
        )
        owner = {"apiVersion": "v1", "kind": "Node", "name": full, "uid": uid}
        self._leases[full] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": full, "ownerReferences": [owner]},  # so the lease is deleted with its node
        }
        if not self._renewing.is_alive():
            self._renewing.start()

    def remove(self, name: str) -> None:
        del self._leases[self.full_name(name)]
        self.cluster.kubectl("delete", "node", self.full_name(name), "--wait=false")

    def set_open(self, name: str, is_open: bool) -> None:
        self.cluster.kubectl("uncordon" if is_open else "cordon", self.full_name(name))

    def take(self, name: str, cpus: int, *, stays: bool = False) -> None:
        self._pods += 1
        full = self.full_name(name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": full, "uid": self._uid_of(full)}
        metadata = {
            "name": f"other-{self._pods}",
            "labels": {"on": name, "stays": str(stays).lower()},
            **({"ownerReferences": [owner]} if stays else {}),
        }
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpus)}}}
        # Nothing runs: there is no kubelet.
        spec = {"nodeName": full, "containers": [container], "tolerations": [{"operator": "Exists"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.cluster.apply(self.namespace, pod)

    def give_back(self, name: str) -> None:
        where = ("-n", self.namespace, "-l", f"on={name},stays=false")
        self.cluster.kubectl("delete", "pods", *where, "--grace-period=0", "--force", "--wait=false")

    def full_name(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    def set_ready(self, name: str, is_ready: bool) -> None:
        """Make a node seem to have stopped answering, or to answer again."""
        full = self.full_name(name)
        self._set_status(full, [{"type": "Ready", "status": str(is_ready)}])

    def taint(self, name: str, effect: str) -> None:
        """Add a taint, which the flavor does not tolerate, to a node."""
        self.cluster.kubectl("taint", "node", self.full_name(name), f"example.com/broken=x:{effect}")

    def _renew_leases(self) -> None:
        while not self._ending.is_set():
            for full, lease in list(self._leases.items()):
                spec = {
                    "holderIdentity": full,
                    "renewTime": datetime.now(UTC).isoformat(timespec="microseconds"),
                }
                with suppress(CommandFailed):  # a test may have stopped the API server
                    self.cluster.apply("kube-node-lease", {**lease, "spec": spec})
            self._ending.wait(_RENEWAL_SECONDS)

    def _uid_of(self, full: str) -> str:
        return self.cluster.kubectl("get", "node", full, "-o", "jsonpath={.metadata.uid}")

    def _set_status(self, full: str, conditions: list[Mapping[str, str]]) -> None:
        for _ in range(10):  # another writer may be faster
            node = json.loads(self.cluster.kubectl("get", "node", full, "-o", "json"))
            node["status"]["conditions"] = conditions
            try:
                path = f"/api/v1/nodes/{full}/status"
                self.cluster.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(node))
            except Exception:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"the status of {full} cannot be written")
