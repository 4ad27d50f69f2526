"""The machines of the cluster: its nodes, minus the resources of pods that this service did not place.

The inventory comes from two lists, each continued by a watch: a list of the nodes, and a list of the pods
that have not ended, in all namespaces. The work for a change of a pod does not depend on the size of the
cluster, because only the pod's node is evaluated again.
"""

import logging
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from job_tracker.backends.base import Machines
from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.api_errors import Forbidden, Unauthorized, Unreachable
from job_tracker.backends.kubernetes.cache import PodCache, WatchTiming
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.flavors import NodeFlavor, flavor_of
from job_tracker.backends.kubernetes.labels import Manifest, planned_place
from job_tracker.backends.kubernetes.quantities import Amounts, offered, requested
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.shared.labels import INSTANCE, MANAGED_BY, MANAGER
from job_tracker.backends.shared.watching import watched
from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.machine import INSTANCES, Machine
from job_tracker.domain.observers import RequestObserver, ignore_request

log = logging.getLogger(__name__)

_PODS = "pods"
"""Each pod takes one unit of this resource of its node. The service calls the resource `instances`."""
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_STAYS = frozenset({"DaemonSet", "Node"})
"""The kinds of owners whose pods never leave their nodes. The owner of a static pod is its node."""
_CALLS = 4


@dataclass(frozen=True, slots=True)
class _Taken:
    """The resources that a pod takes from its node."""

    node: str
    amounts: Amounts
    stays: bool
    planned: tuple[str, str] | None
    """The flavor and the node that this service's scheduler has chosen for the pod; None for other pods."""


class NodeInventory:
    """See Inventory. Connects with the first call."""

    def __init__(
        self,
        settings: KubernetesSettings,
        followed: Collection[str],
        timing: WatchTiming | None = None,
        on_request: RequestObserver = ignore_request,
    ) -> None:
        """`followed` has the names of the flavors whose nodes `machines` yields."""
        self._settings = settings
        self._flavors = settings.flavors
        self._followed = frozenset(followed)
        access = Access(kubeconfig=settings.kubeconfig, context=settings.context)
        self._client = KubernetesClient(access, "", calls=_CALLS, streams=1, on_request=on_request)
        timing = timing or WatchTiming()
        self._node_cache = PodCache(self._client, "", self._take_nodes, timing, "nodes", reduced=_slim_node)
        self._pod_cache = PodCache(
            self._client, "", self._take_pods, timing, fields=_NOT_ENDED, reduced=self._slim_pod
        )
        self._nodes: dict[str, Manifest] = {}
        self._pods: dict[str, dict[str, _Taken]] = {}
        """The resources that pods take, by node and by the pod's uid."""
        self._node_of: dict[str, str] = {}
        """The node of each of these pods, by the pod's uid."""
        self._machines: dict[str, Machine] = {}
        self._feed: Broadcast[str, Machine | None] = Broadcast()

    async def check(self) -> None:
        """Check that the service may read nodes and pods.

        Raises BackendRefused if it may not; an unreachable cluster is accepted.
        """
        try:
            await self._sync()
        except (Forbidden, Unauthorized) as error:
            raise BackendRefused(
                f"kubernetes.flavors: the capacity of {', '.join(sorted(self._followed))} follows the nodes, "
                "but the service may not read nodes, or pods of all namespaces. Give it the rights in "
                f"deploy/optional/followed-nodes, or set scheduling.flavors ({error.message})"
            ) from error
        except Unreachable as error:
            log.warning("kubernetes: the nodes cannot be read; trying again later: %s", error)

    def machines(self) -> Machines:
        """See Inventory."""
        return watched(self._look, self._feed)

    async def close(self) -> None:
        """Close all connections."""
        await self._node_cache.close()
        await self._pod_cache.close()
        await self._client.close()

    async def _look(self) -> Mapping[str, Machine]:
        await self._sync()
        return dict(self._machines)

    async def _sync(self) -> None:
        # Pods are read first, because nodes without their pods would look empty.
        await self._pod_cache.sync()
        await self._node_cache.sync()

    def _take_nodes(self, changes: Sequence[tuple[Manifest, bool]]) -> None:
        for node, is_gone in changes:
            name = node["metadata"]["name"]
            if is_gone:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = node
        self._look_again(node["metadata"]["name"] for node, _ in changes)

    def _take_pods(self, changes: Sequence[tuple[Manifest, bool]]) -> None:
        changed: dict[str, None] = {}
        for pod, is_gone in changes:
            uid = pod["metadata"]["uid"]
            taken = None if is_gone else pod["taken"]
            before = self._node_of.pop(uid, None)
            if before is not None:
                changed[before] = None
                del self._pods[before][uid]
                if not self._pods[before]:
                    del self._pods[before]
            if taken is not None:
                changed[taken.node] = None
                self._node_of[uid] = taken.node
                self._pods.setdefault(taken.node, {})[uid] = taken
        self._look_again(changed)

    def _look_again(self, names: Iterable[str]) -> None:
        for name in names:
            machine = self._machine(name)
            if machine == self._machines.get(name):
                continue
            if machine is None:
                del self._machines[name]
            else:
                self._machines[name] = machine
            self._feed.publish(name, machine)

    def _machine(self, name: str) -> Machine | None:
        """Return the machine of the node with this name.

        None: there is no such node, or the node does not belong to a followed flavor.
        """
        node = self._nodes.get(name)
        if node is None or (flavor := flavor_of(node, self._flavors)) not in self._followed or flavor is None:
            return None
        labels = node["metadata"].get("labels") or {}
        offers = offered(node["status"].get("allocatable") or {})
        # Pods that the service's scheduler has placed on this node are left out, because the scheduler itself
        # subtracts them. If the node's flavor has changed since then, the scheduler does not subtract these
        # pods, so they count here.
        taken = [each for each in self._pods.get(name, {}).values() if each.planned != (flavor, name)]
        topology = self._settings.topology.labels
        return Machine(
            name=name,
            flavor=flavor,
            capacity=_left(offers, taken),
            most=_left(offers, (each for each in taken if each.stays)),
            is_open=_is_open(node, self._flavors[flavor]),
            labels=labels,
            places={place: labels[label] for place, label in topology.items() if label in labels},
        )

    def _slim_pod(self, pod: Manifest) -> Manifest:
        """Return only the pod's identity and the resources that it takes.

        This saves memory: all namespaces together may have very many pods.
        """
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        is_ours = (
            metadata.get("namespace") == self._settings.namespace
            and labels.get(MANAGED_BY) == MANAGER
            and labels.get(INSTANCE) == self._settings.instance
        )
        spec = pod.get("spec") or {}
        owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or ()}
        kept = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        taken = None
        if node := spec.get("nodeName"):
            taken = _Taken(
                sys.intern(node),
                requested({"spec": spec}),
                stays=bool(owners & _STAYS),
                planned=planned_place(pod) if is_ours else None,
            )
        return {"metadata": kept, "taken": taken}


def _slim_node(node: Manifest) -> Manifest:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    kept = {key: metadata[key] for key in ("name", "uid", "resourceVersion")}
    labels = {sys.intern(key): sys.intern(value) for key, value in (metadata.get("labels") or {}).items()}
    ready: Manifest = next(
        (each for each in status.get("conditions") or () if each.get("type") == "Ready"), {}
    )
    return {
        "metadata": {**kept, "labels": labels},
        "spec": {"unschedulable": spec.get("unschedulable", False), "taints": spec.get("taints") or []},
        "status": {
            "allocatable": status.get("allocatable") or {},
            "ready": ready.get("status") == "True",
            "leaves": "deletionTimestamp" in metadata,
        },
    }


def _is_open(node: Manifest, flavor: NodeFlavor) -> bool:
    status, spec = node["status"], node["spec"]
    return bool(
        status["ready"]
        and not status["leaves"]
        and not spec["unschedulable"]
        and flavor.tolerates(spec["taints"])
    )


def _left(offers: Mapping[str, int], taken: Iterable[_Taken]) -> Amounts:
    """Return the resources that a node offers, minus those that the pods in `taken` take.

    The resource `pods` of Kubernetes becomes `instances`.
    """
    left = {INSTANCES if name == _PODS else name: amount for name, amount in offers.items()}
    left.setdefault(INSTANCES, 0)
    for each in taken:
        left[INSTANCES] -= 1
        for name, amount in each.amounts.items():
            if name in left:
                left[name] -= amount
    return left
