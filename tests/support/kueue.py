"""A stand-in for Kueue's webhook and controllers on a fake cluster: it gates pods, admits and evicts groups.

It follows kubernetes-sigs/kueue: pkg/controller/jobs/pod (pod_webhook.go, pod_controller.go), the order of
steps of pkg/controller/jobframework/reconciler.go, and the messages of
pkg/controller/core/workload_controller.go. A quota is a number of pods for each LocalQueue, and groups are
admitted in the order of their names.
"""

import copy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.fake_cluster import FakeCluster, Object

_MOST_ROUNDS = 1000
_PREFIX = "kueue.x-k8s.io/"
MANAGED, GATE, GROUP = f"{_PREFIX}managed", f"{_PREFIX}admission", f"{_PREFIX}pod-group-name"
QUEUE, SIZE, RETRIABLE = (
    f"{_PREFIX}queue-name",
    f"{_PREFIX}pod-group-total-count",
    f"{_PREFIX}retriable-in-group",
)
IN_USE = f"{_PREFIX}resource-in-use"

_CONDITION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
        "status": {"enum": ["True", "False", "Unknown"]},
        "type": {"type": "string", "maxLength": 316},
    },
}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kueue.x-k8s.io/v1beta2"},
        "kind": {"const": "Workload"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "active": {"type": "boolean"},
                "queueName": {"type": "string", "maxLength": 253},
                "podSets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 18,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["count", "template"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 63},
                            "count": {"type": "integer", "minimum": 0},
                            "template": {"type": "object"},
                        },
                    },
                },
            },
        },
        "status": {"properties": {"conditions": {"type": "array", "items": _CONDITION, "maxItems": 16}}},
    },
}
"""The published schema of Workloads, as far as the stand-in uses it, written by hand.

Source: config/components/crd/bases/kueue.x-k8s.io_workloads.yaml, v1beta2.
"""


class Kueue:
    """Manages the pods of a fake cluster that name a LocalQueue."""

    def __init__(self, cluster: FakeCluster, **quotas: int) -> None:
        """`quotas` are the LocalQueues, with the number of pods that each admits."""
        self.cluster = cluster
        self.quotas = quotas
        self._is_busy = False
        self.come()

    def come(self) -> None:
        """Begin to work, and catch up with earlier changes."""
        self.cluster.webhook, self.cluster.on_change = self._default, self.reconcile
        self.reconcile()

    def go(self, *, webhook: bool = False) -> None:
        """Stop working.

        Without `webhook`, the webhook does not answer either, so the API server refuses pods.
        """
        self.cluster.on_change = lambda: None
        if not webhook:
            self.cluster.webhook = lambda _: 'failed calling webhook "mpod.kb.io": connection refused'

    def admit(self, queue: str, pods: int) -> None:
        """Set the quota of a LocalQueue, which may be new."""
        self.quotas[queue] = pods
        self.reconcile()

    def evict(self, group: str, reason: str = "Preempted", message: str = "") -> None:
        """Take back the admission of a group, by default for the benefit of a group with a higher
        priority.
        """
        message = message or "Preempted to accommodate a workload (UID: u, JobUID: j) due to prioritization"
        if reason == "Preempted":
            self._set(group, "Preempted", "True", "InClusterQueue", message)
        self._set(group, "Evicted", "True", reason, message)

    def deactivate(self, group: str) -> None:
        """Do what Kueue does when a person sets `active: false` on a Workload."""
        self.cluster.change("workloads", group, lambda found: found["spec"].update(active=False))
        self.evict(group, "Deactivated", "The workload is deactivated")

    def conditions(self, group: str) -> dict[str, str]:
        """Return the statuses of the conditions of a Workload."""
        found = self.cluster.get(group, "workloads").get("status", {}).get("conditions", ())
        return {each["type"]: each["status"] for each in found}

    # --- the webhook ----------------------------------------------------------------------------------

    def _default(self, pod: Object) -> str:
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        if QUEUE not in labels or labels.get(MANAGED):
            return ""
        if (GROUP in labels) is not (SIZE in annotations):
            return f"both the '{SIZE}' annotation and the '{GROUP}' label should be set"
        labels[MANAGED] = "true"
        pod["metadata"]["finalizers"] = [*pod["metadata"].get("finalizers", ()), MANAGED]
        gates = pod["spec"].setdefault("schedulingGates", [])
        if {"name": GATE} not in gates:
            gates.append({"name": GATE})
        return ""

    # --- the controllers ------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Repeat steps until nothing changes any more."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            for _ in range(_MOST_ROUNDS):
                if not any([self._reconcile(group) for group in self._groups()] + [self._admit()]):
                    return
            raise AssertionError("the stand-in for Kueue does not come to rest")
        finally:
            self._is_busy = False

    def _groups(self) -> list[str]:
        pods = (self.cluster.get(name) for name in sorted(self.cluster.names()))
        groups = {pod["metadata"]["labels"].get(GROUP): None for pod in pods if _is_managed(pod)}
        return [*dict.fromkeys([*groups, *sorted(self.cluster.names("workloads"))])]

    def _pods(self, group: str) -> list[Object]:
        found = (self.cluster.get(name) for name in sorted(self.cluster.names()))
        return [pod for pod in found if _is_managed(pod) and pod["metadata"]["labels"].get(GROUP) == group]

    def _reconcile(self, group: str) -> bool:
        """Take one step for a group, and return whether it changed something."""
        pods = self._pods(group)
        known = group in self.cluster.names("workloads")
        workload = self.cluster.get(group, "workloads") if known else None
        if not pods:
            return workload is not None and self._remove(group)
        if workload is not None and self.conditions(group).get("Finished") == "True":
            return self._finalize(pods)
        if workload is not None and "deletionTimestamp" in workload["metadata"]:
            self._stop(pods, "WorkloadDeleted", "Workload is deleted", gated_too=True)
            self._finalize(self._pods(group))
            return self._remove(group)
        size = int(pods[0]["metadata"]["annotations"][SIZE])
        if self._has_finished(pods, size):
            if workload is not None:
                self._set(group, "Finished", "True", "Succeeded", "Pods have ended")
            return self._finalize(pods) or workload is not None
        if workload is None:
            return self._compose(group, pods, size)
        conditions = self.conditions(group)
        if conditions.get("Evicted") == "True":
            changed = self._stop(pods, "WorkloadEvicted", self._message(group, "Evicted"))
            if conditions.get("QuotaReserved") == "True" and not any(map(_runs, self._pods(group))):
                for kind in ("QuotaReserved", "Admitted"):
                    self._set(group, kind, "False", "Pending", self._message(group, "Evicted"))
                return True
            return changed
        if any(map(_is_gated, pods)):
            return conditions.get("Admitted") == "True" and self._ungate(pods)
        if conditions.get("Admitted") != "True":
            return self._stop(pods, "NotAdmitted", "Not admitted by cluster queue")
        return False

    def _compose(self, group: str, pods: list[Object], size: int) -> bool:
        inactive = [pod for pod in pods if not _may_run(pod)]
        if len(pods) - len(inactive) < size:
            return self._finalize(inactive)
        made = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": group,
                "finalizers": [IN_USE],
                "labels": {},
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        **{key: pod["metadata"][key] for key in ("name", "uid")},
                    }
                    for pod in pods
                ],
            },
            "spec": {
                "active": True,
                "queueName": pods[0]["metadata"]["labels"][QUEUE],
                "podSets": [
                    {"name": "main", "count": size, "template": {"spec": copy.deepcopy(pods[0]["spec"])}}
                ],
            },
        }
        Draft202012Validator(SCHEMA).validate(made)
        self.cluster.put("workloads", made)
        return True

    def _admit(self) -> bool:
        """Admit Workloads in the order of their names, and note why others wait.

        Return whether something changed.
        """
        changed = False
        used: dict[str, int] = {}
        waiting = []
        for group in sorted(self.cluster.names("workloads")):
            workload, conditions = self.cluster.get(group, "workloads"), self.conditions(group)
            queue, size = workload["spec"]["queueName"], workload["spec"]["podSets"][0]["count"]
            if conditions.get("Finished") == "True":
                continue
            if conditions.get("Admitted") == "True":
                used[queue] = used.get(queue, 0) + size
            elif conditions.get("QuotaReserved") != "True" and workload["spec"]["active"]:
                waiting.append((group, queue, size))
        self._show([(group, queue) for group, queue, _ in waiting])
        for group, queue, size in waiting:
            lacking = used.get(queue, 0) + size - self.quotas.get(queue, 0)
            if queue not in self.quotas:
                said = ("QuotaReserved", "False", "Inadmissible", f"LocalQueue {queue} doesn't exist")
            elif lacking > 0:
                why = f"insufficient unused quota for pods in flavor default, {lacking} more needed"
                said = (
                    *("QuotaReserved", "False", "Pending"),
                    f"couldn't assign flavors to pod set main: {why}",
                )
            else:
                used[queue] = used.get(queue, 0) + size
                self._set(group, "QuotaReserved", "True", "QuotaReserved", f"Quota reserved in {queue}")
                if self.conditions(group).get("Evicted") == "True":  # an evicted group may get new pods
                    self._set(group, "Evicted", "False", "QuotaReserved", "Previously: evicted")
                said = ("Admitted", "True", "Admitted", "The workload is admitted")
            changed |= self._set(group, *said)
        return changed

    def _show(self, waiting: list[tuple[str, str]]) -> None:
        """Set the answers of the visibility API, as if all LocalQueues belonged to one ClusterQueue."""
        for queue in {*self.quotas, *(queue for _, queue in waiting)}:
            places = [(place, group) for place, (group, of) in enumerate(waiting) if of == queue]
            items = [
                {
                    "metadata": {"name": group},
                    "localQueueName": queue,
                    "priority": 0,
                    "positionInClusterQueue": place,
                    "positionInLocalQueue": number,
                }
                for number, (place, group) in enumerate(places)
            ]
            self.cluster.put("localqueues", {"metadata": {"name": queue}, "items": items})

    def _has_finished(self, pods: list[Object], size: int) -> bool:
        phases = [pod["status"]["phase"] for pod in pods]
        is_over = all(phase in ("Succeeded", "Failed") for phase in phases)
        retriable = all(pod["metadata"]["annotations"].get(RETRIABLE) != "false" for pod in pods)
        return phases.count("Succeeded") == size or (is_over and not retriable)

    def _stop(self, pods: list[Object], reason: str, message: str, *, gated_too: bool = False) -> bool:
        changed = False
        for pod in pods:
            is_suspended = _is_gated(pod) or pod["status"]["phase"] in ("Succeeded", "Failed")
            if "deletionTimestamp" in pod["metadata"] or (is_suspended and not gated_too):
                continue
            name = pod["metadata"]["name"]
            self.cluster.change("pods", name, _with("TerminationTarget", "True", reason, message))
            self.cluster.end_pod(name)
            changed = True
        return changed

    def _ungate(self, pods: list[Object]) -> bool:
        for pod in filter(_is_gated, pods):
            self.cluster.change("pods", pod["metadata"]["name"], _ungate)
        return True

    def _finalize(self, pods: list[Object]) -> bool:
        held = [pod for pod in pods if MANAGED in pod["metadata"].get("finalizers", ())]
        for pod in held:
            self._without(pod, "pods", MANAGED)
        return bool(held)

    def _remove(self, group: str) -> bool:
        self.cluster.delete(group, kind="workloads")
        if group in self.cluster.names("workloads"):
            self._without(self.cluster.get(group, "workloads"), "workloads", IN_USE)
        return True

    def _without(self, of: Object, kind: str, finalizer: str) -> None:
        left = [each for each in of["metadata"]["finalizers"] if each != finalizer]
        self.cluster.change(
            kind, of["metadata"]["name"], lambda found: found["metadata"].update(finalizers=left)
        )

    def _message(self, group: str, kind: str) -> str:
        found = self.cluster.get(group, "workloads")["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == kind)

    def _set(self, group: str, kind: str, status: str, reason: str, message: str) -> bool:
        before = self.cluster.get(group, "workloads")
        after = copy.deepcopy(before)
        _with(kind, status, reason, message)(after)
        if _said(after) == _said(before):
            return False
        Draft202012Validator(SCHEMA).validate(after)
        self.cluster.change("workloads", group, lambda found: found.update(status=after["status"]))
        return True


def _said(workload: Object) -> list[tuple[str, ...]]:
    conditions = workload.get("status", {}).get("conditions", ())
    return [tuple(each[key] for key in ("type", "status", "reason", "message")) for each in conditions]


def _with(kind: str, status: str, reason: str, message: str) -> Callable[[Object], None]:
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }

    def change(found: Object) -> None:
        status_of = found.setdefault("status", {})
        others = [each for each in status_of.get("conditions", ()) if each["type"] != kind]
        status_of["conditions"] = [*others, condition]

    return change


def _ungate(pod: Object) -> None:
    pod["spec"]["schedulingGates"] = [each for each in pod["spec"]["schedulingGates"] if each["name"] != GATE]


def _is_managed(pod: Object) -> bool:
    return bool(pod["metadata"]["labels"].get(MANAGED) == "true")


def _is_gated(pod: Object) -> bool:
    return {"name": GATE} in pod["spec"].get("schedulingGates", ())


def _runs(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _may_run(pod: Object) -> bool:
    never_placed = not pod["status"].get("containerStatuses")
    is_lost = "deletionTimestamp" in pod["metadata"] and never_placed
    return not is_lost and pod["status"]["phase"] != "Failed"
