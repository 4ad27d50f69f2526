"""Marks pods for Kueue, so that Kueue decides when their group starts. Also reads Kueue's messages.

This module has no I/O.

Kueue's webhook adds the label `managed`, a finalizer, and a gate to each pod that names a LocalQueue. When
all pods of a group exist, Kueue makes a Workload with the name of the group. Kueue removes the gates when it
admits the Workload. To evict the group, Kueue sets the condition TerminationTarget and deletes the pods.

Kueue removes the finalizers in three cases: all pods have succeeded; all pods have ended, and an annotation
of one pod says that no pod will be replaced; or the Workload is deleted.

Sources: kubernetes-sigs/kueue, constants/constants.go, pod_webhook.go and pod_controller.go in
pkg/controller/jobs/pod; apis/kueue/v1beta2/workload_types.go; apis/visibility/v1beta2/types.go.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from job_tracker.backends.kubernetes.gangs import with_more
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.catalog.syntax import ObjectName
from job_tracker.common.config import Config
from job_tracker.domain.job import Job

KueueResource = Literal["workloads.kueue.x-k8s.io", "localqueues.visibility.kueue.x-k8s.io"]
WORKLOADS: Final[KueueResource] = "workloads.kueue.x-k8s.io"
LOCAL_QUEUES: Final[KueueResource] = "localqueues.visibility.kueue.x-k8s.io"
APIS: Final[Mapping[str, str]] = {
    WORKLOADS: "/apis/kueue.x-k8s.io/v1beta2",
    LOCAL_QUEUES: "/apis/visibility.kueue.x-k8s.io/v1beta2",
}

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
GROUP: Final = "kueue.x-k8s.io/pod-group-name"
SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
MANAGED: Final = "kueue.x-k8s.io/managed"
"""The label that Kueue sets, which is also the name of its finalizer."""
GATE: Final = "kueue.x-k8s.io/admission"
EVICTED: Final = "TerminationTarget"
"""The condition of pods that Kueue stops."""
# The conditions that show the state of a Workload, the most informative ones first.
_CONDITIONS: Final = (
    "Finished",
    "Evicted",
    "Preempted",
    "QuotaReserved",
    "Admitted",
    "DeactivationTarget",
)
_IF_TRUE: Final = _CONDITIONS[:3]
_PREFIX: Final = "kueue.x-k8s.io/"
_TOPOLOGY: Final = f"{_PREFIX}podset-"
"""The prefix of the annotations that place a group's pods relative to each other. A request may set them."""

LocalQueueName = Annotated[ObjectName, Field(max_length=63)]


class KueueSettings(Config):
    """The table [kubernetes.kueue]: names of queues and priorities in Kueue, for `scheduling.delegate`."""

    queues: dict[str, LocalQueueName] = Field(
        default={},
        max_length=10_000,
        description="For each queue of this service, the name of its LocalQueue. A queue without an entry "
        "has the LocalQueue of the same name.",
    )
    priority_classes: dict[str, LocalQueueName] = Field(
        default={},
        max_length=100,
        description="For each class of `scheduling.priorities`, the name of its WorkloadPriorityClass. The "
        "jobs of other classes have Kueue's default priority.",
    )


@dataclass(frozen=True, slots=True)
class KueueMarks:
    """Labels and annotations of the pods of a group for Kueue; see GroupMarks."""

    queues: Mapping[str, str] = field(default_factory=dict)
    priority_classes: Mapping[int, str] = field(default_factory=dict)
    """Kueue's priority classes, by the number of the priority."""

    def of_group(self, pod: Manifest, job: Job, size: int) -> dict[str, Any]:
        """See GroupMarks.

        Like Kueue's webhook, the service sets the gate. So even in namespaces that the webhook does not
        watch, no pod starts without Kueue. If a request or a template sets keys of Kueue, only the keys about
        the topology stay: the others could name other groups, or get around quotas.
        """
        priority = self.priority_classes.get(job.spec.priority)
        gates = [each for each in pod["spec"].get("schedulingGates") or () if each["name"] != GATE]
        metadata = pod["metadata"]
        own = {kind: _without_keys(metadata[kind]) for kind in ("labels", "annotations")}
        return with_more(
            {**pod, "metadata": {**metadata, **own}},
            labels={
                QUEUE: self.queues.get(job.spec.queue, job.spec.queue),
                GROUP: job.group.name,
                **({PRIORITY: priority} if priority else {}),
            },
            annotations={SIZE: str(size)},
            spec={"schedulingGates": [*gates, {"name": GATE}]},
        )

    def pod_group(self, metadata: Mapping[str, Any], size: int) -> None:  # noqa: ARG002
        """See GroupMarks: Kueue itself creates the object."""
        return


def _without_keys(values: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations without Kueue's keys, except its keys about the topology."""
    return {
        key: value
        for key, value in values.items()
        if not key.startswith(_PREFIX) or key.startswith(_TOPOLOGY)
    }


def of_stop(pod: Manifest) -> dict[str, str]:
    """Return the annotations that a pod gets when its group is stopped, so that Kueue can finish the group.

    The result is empty if Kueue does not manage the pod. These annotations are set only at the stop. Until
    then, Kueue's finalizer keeps pods that have ended from being removed. So the service learns how they
    ended even if it did not run at that time.
    """
    return {RETRIABLE: "false"} if is_managed(pod) else {}


def is_managed(pod: Manifest) -> bool:
    """Return whether Kueue's webhook has to agree to changes of the pod."""
    metadata = pod["metadata"]
    return QUEUE in (metadata.get("labels") or {}) or MANAGED in (metadata.get("finalizers") or ())


def is_gated(pod: Manifest) -> bool:
    """Return whether the pod still waits for Kueue to let it start."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate["name"] == GATE for gate in gates)


def is_held(pod: Manifest) -> bool:
    """Return whether the pod never ran, is being deleted, and waits until Kueue removes its finalizer."""
    metadata = pod["metadata"]
    never_ran = not (pod.get("spec") or {}).get("nodeName") and not (pod.get("status") or {}).get(
        "containerStatuses"
    )
    return never_ran and "deletionTimestamp" in metadata and MANAGED in (metadata.get("finalizers") or ())


def is_of(workload: Manifest, pods: Iterable[Manifest]) -> bool:
    """Return whether the Workload belongs to the group of these pods.

    A foreign Workload may have the group's name.
    """
    owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
    return any(pod["metadata"]["uid"] in owners for pod in pods)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a waiting group: the number of Workloads before it in its ClusterQueue, and how many of
    these Workloads are in its LocalQueue.
    """

    in_cluster_queue: int
    in_local_queue: int

    def sentence_part(self) -> str:
        """Return the place in words, such as "first in its ClusterQueue", as a part of a sentence that
        names the LocalQueue.
        """
        before, same = self.in_cluster_queue, self.in_local_queue
        if not before:
            return "first in its ClusterQueue"
        others = f"{before} other{'s' if before > 1 else ''} in its ClusterQueue"
        return f"after {others}, {same} of them in this LocalQueue"


def places_in(summary: Manifest) -> dict[str, Place]:
    """Return the places of Workloads by name, from the summary of the Workloads that wait in a LocalQueue."""
    return {
        each["metadata"]["name"]: Place(each["positionInClusterQueue"], each["positionInLocalQueue"])
        for each in summary.get("items") or ()
    }


def queue_of(pod: Manifest) -> str:
    """Return the LocalQueue of a pod."""
    return str((pod["metadata"].get("labels") or {}).get(QUEUE, ""))


def waiting_note(pod: Manifest, workload: Manifest | None, place: Place | None = None) -> str:
    """Return the reason why the group of a gated pod waits, with Kueue's messages about the Workload.

    `workload` is None if the group has no Workload. `place` is None if the place is unknown.
    """
    labels = pod["metadata"].get("labels") or {}
    waits = f"Waits for Kueue in the LocalQueue {queue_of(pod)}"
    if place is not None:
        waits += f", {place.sentence_part()}"
    if workload is not None:
        said = "; ".join(_conditions(workload)) or "Kueue has not looked at it yet"
        return f"{waits}: {said}"
    if labels.get(MANAGED) != "true":
        return (
            f"{waits}: Kueue does not manage the pod; check that Kueue's integration `pod` is enabled, and "
            f"that Kueue manages the namespace {pod['metadata'].get('namespace', '')}"
        )
    return f"{waits}: Kueue has made no Workload for the group yet; if that lasts, see the Events of the pods"


def _conditions(workload: Manifest) -> Iterator[str]:
    found = {each["type"]: each for each in (workload.get("status") or {}).get("conditions") or ()}
    for kind in _CONDITIONS:
        condition = found.get(kind)
        if condition is None or (kind in _IF_TRUE and condition["status"] != "True"):
            continue
        reason, message = condition.get("reason") or "unknown", condition.get("message") or ""
        is_true = "" if condition["status"] == "True" else "not "
        yield f"{is_true}{kind} ({reason}){f': {message}' if message else ''}"
