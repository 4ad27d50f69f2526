"""Tables of the diagnoses for the reasons that Kubernetes gives. Pure functions, without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from job_tracker.backends.kubernetes import fetch_program
from job_tracker.backends.shared.evidence import SENT_FROM_OUTSIDE, USE_LESS_MEMORY, signal_name
from job_tracker.backends.shared.failures import crashed, exited
from job_tracker.backends.shared.log_ends import evidence_of
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import EvictionReason

LONGEST_MESSAGE = 2048
"""The most bytes of a log's end that the kubelet copies into the pod's status.

The kubelet does so because of the terminationMessagePolicy FallbackToLogsOnError.
"""
_SUBMIT_AGAIN = "The job is not at fault; submit it again."


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. In `summary`, {rank} is the rank and {container} the container's name."""

    category: Category
    summary: str
    resolution: str
    retryable: bool = False
    may_recover: bool = True
    """True if the problem may disappear by itself. If so, the rank gets some time to recover."""
    eviction: EvictionReason | None = None
    """The reason of an eviction, if the pod's processes get a notice and time to end; otherwise None.

    The end of an evicted pod is not a failure.
    """

    def about(self, rank: int, detail: str = "", container: str = "") -> Diagnosis:
        """Return the diagnosis for a rank."""
        return Diagnosis(
            category=self.category,
            summary=self.summary.format(rank=rank, container=container),
            resolution=self.resolution,
            detail=detail,
            retryable=self.retryable,
            rank=rank,
        )


_IMAGE_PULL = Row(
    Category.IMAGE_PULL_FAILED,
    "The image of rank {rank} (container {container}) cannot be pulled.",
    "Check the image name and tag in algorithms.NAME.kubernetes.image, and that the nodes can reach the "
    "registry. If the registry needs a login, check image_pull_secrets.",
)
_NOT_CREATED = Row(
    Category.CONTAINER_NOT_CREATED,
    "The node cannot create container {container} of rank {rank}.",
    "Read the detail. The usual causes are mounts, devices and the runtime class.",
)

# Reasons of waiting containers (kubelet: pkg/kubelet/container/sync_result.go, images/types.go).
WAITING: Mapping[str, Row] = {
    "ErrImagePull": _IMAGE_PULL,  # the pull has just failed
    "ImagePullBackOff": _IMAGE_PULL,  # ... and is retried later
    "RegistryUnavailable": _IMAGE_PULL,
    "ImageInspectError": _IMAGE_PULL,
    "SignatureValidationFailed": _IMAGE_PULL,
    "ErrImageNeverPull": Row(
        Category.IMAGE_PULL_FAILED,
        "The image of rank {rank} is not on its node, and image_pull_policy is Never.",
        "Load the image onto every node, or set image_pull_policy to IfNotPresent.",
    ),
    "InvalidImageName": Row(
        Category.INVALID_IMAGE,
        "The image of rank {rank} (container {container}) has an invalid name.",
        "Correct algorithms.NAME.kubernetes.image, or the pod_template that adds the container.",
        may_recover=False,
    ),
    "CreateContainerConfigError": Row(
        Category.CONTAINER_CONFIG,
        "Container {container} of rank {rank} cannot be configured on its node.",
        "Read the detail. Create the Secret or ConfigMap if one is missing. For an error about runAsNonRoot, "
        "give the image a numeric USER other than 0, or set run_as_user.",
    ),
    "CreateContainerError": _NOT_CREATED,
    "RunContainerError": _NOT_CREATED,
    "PreCreateHookError": _NOT_CREATED,
    "PreStartHookError": _NOT_CREATED,
    "PostStartHookError": _NOT_CREATED,
}
# Reasons of containers that are starting normally.
ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing"})
# The start of a kubelet's message about a Secret or ConfigMap that it has not read yet. The kubelet soon
# tries again.
NOT_READ_YET = "failed to sync "

NODE_LOST = Row(
    Category.NODE_LOST,
    "The node of rank {rank} is lost, and the rank with it.",
    f"{_SUBMIT_AGAIN} If this happens often, check the node.",
    retryable=True,
)
PLACE_TAKEN = Row(
    Category.PLACE_TAKEN,
    "The node that was chosen for rank {rank} has no room for it any more.",
    "Nothing has to be done: the job waits for room again. If this happens often, keep other pods off the "
    "nodes of the flavor.",
    retryable=True,
)
_NODE_SHUT_DOWN = Row(
    Category.NODE_LOST,
    "The node of rank {rank} was shut down.",
    _SUBMIT_AGAIN,
    retryable=True,
)
_STOPPED_WITH_ITS_NODE = replace(_NODE_SHUT_DOWN, eviction=EvictionReason.SHUT_DOWN)
_TAINTED = replace(NODE_LOST, eviction=EvictionReason.TAINTED)
_EVICTED = Row(
    Category.EVICTED,
    "Rank {rank} was evicted because its node ran short of a resource.",
    "Set the algorithm's resources to what it uses (memory, ephemeral-storage), then submit the job again.",
    retryable=True,
)
_OVER_ITS_LIMIT = Row(
    Category.EVICTED,
    "Rank {rank} was evicted because it used more disk or shared memory than its limit.",
    "Raise scratch_size (HOME, TMPDIR), shm_size (/dev/shm) or resources.ephemeral-storage, or write less.",
)
_DRAINED = Row(
    Category.EVICTED,
    "Rank {rank} was evicted through the eviction API, usually because its node is being drained.",
    _SUBMIT_AGAIN,
    retryable=True,
    eviction=EvictionReason.DRAINED,
)
_PREEMPTED = Row(
    Category.PREEMPTED,
    "Rank {rank} was removed to make room for a pod of higher priority.",
    "Submit the job again, or set its priority_class.",
    retryable=True,
    eviction=EvictionReason.OUTRANKED,
)
BY_KUEUE = Row(
    Category.EVICTED,
    "Kueue stopped rank {rank}.",
    "Nothing has to be done: the job waits for Kueue again.",
    retryable=True,
    eviction=EvictionReason.CLUSTER_QUEUE,
)
_REFUSED = Row(
    Category.NODE_REFUSED,
    "The node of rank {rank} refused to run it.",
    f"Other pods took the node's resources in the meantime. {_SUBMIT_AGAIN}",
    retryable=True,
)
DELETED = Row(
    Category.POD_DELETED,
    "The pod of rank {rank} was deleted, but not by this service.",
    "Submit the job again. A person or a program deleted the pod, or a drain of its node evicted it; "
    "clusters before 1.26 do not report which.",
    retryable=True,
    eviction=EvictionReason.DELETED,
)
_SERVICE_DELETED = Row(
    Category.SERVICE_DELETED,
    "Rank {rank} failed while Service {service}, through which the ranks find each other, was missing.",
    "Submit the job again. The Service was deleted, but not by this service, which recreates it. Find out "
    "what deletes Services in this namespace.",
    retryable=True,
)
NEVER_SEEN = Row(
    Category.UNKNOWN,
    "The pod of rank {rank} failed for an unknown reason.",
    "Read the detail and the rank's log.",
)
INIT_FAILED = Row(
    Category.INIT_FAILED,
    "Init container {container} of rank {rank} failed, so the training never started.",
    "The algorithm's pod_template or the cluster adds this container. Read its log with kubectl logs -c.",
)

_FETCH_FAILED = "The files of the program could not be fetched into the pod of rank {rank}."
_FETCHES: Mapping[int, Row] = {
    fetch_program.NO_GRPC: Row(
        Category.INIT_FAILED,
        _FETCH_FAILED,
        "The image that fetches the program's files lacks grpcio: kubernetes.fetch_image or, if that is not "
        "set, the image of the program. Install it there, choose another image (in the request, in "
        "kubernetes.program_image or in program_environments), or ask the operator to set "
        "kubernetes.fetch_image to the image of the service.",
    ),
    fetch_program.REFUSED: Row(
        Category.INIT_FAILED,
        _FETCH_FAILED,
        "Read the service's reason in the detail. If files are missing, submit the program again: trainctl "
        "run uploads them.",
    ),
    fetch_program.UNREACHABLE: Row(
        Category.INIT_FAILED,
        _FETCH_FAILED,
        "Check that pods reach the service at reports.address (its Service and network policies, and "
        "reports.ca with TLS), then submit the job again.",
        retryable=True,
    ),
    fetch_program.NOT_WRITTEN: Row(
        Category.INIT_FAILED,
        _FETCH_FAILED,
        "Check the free space of the nodes, and scratch_size in kubernetes.pod.",
        retryable=True,
    ),
}
_NOT_FETCHED = Row(
    Category.INIT_FAILED,
    _FETCH_FAILED,
    "Check that the image that fetches the files has python3 with grpcio. This is kubernetes.fetch_image if "
    "it is set, and otherwise the image of the program: from the request, kubernetes.program_image or "
    "program_environments.",
)
NO_ADDRESS = Diagnosis(
    category=Category.LAUNCH_FAILED,
    summary="Pods cannot fetch the files of the program: they have no address of the service.",
    resolution="Set reports.address, and reports.listen if callers of server.address need certificates. Then "
    "submit the job again.",
)


def no_label(place: str) -> Diagnosis:
    """Return the diagnosis of a job whose placement names a kind of place, such as `rack`, that has no label
    in the configuration.
    """
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary=f"The placement of the job requires a {place}, but kubernetes.topology.{place} is not set.",
        resolution=f"Set kubernetes.topology.{place} to the label of nodes that names the {place}, or submit "
        "the job without this requirement.",
    )


# Reasons of pods that the kubelet or a controller ended (`status.reason`).
POD: Mapping[str, Row] = {
    "Evicted": _EVICTED,
    "Preempting": _PREEMPTED,  # by the kubelet, for a critical pod
    "NodeLost": NODE_LOST,
    "Shutdown": _NODE_SHUT_DOWN,  # up to Kubernetes 1.21
    "NodeShutdown": _NODE_SHUT_DOWN,  # refused by a node during its shutdown
    "Terminated": _STOPPED_WITH_ITS_NODE,  # since Kubernetes 1.22
    "DeadlineExceeded": Row(
        Category.DEADLINE_EXCEEDED,
        "Rank {rank} ran for longer than the deadline of its pod (activeDeadlineSeconds).",
        "Raise the deadline in the algorithm's pod_template, or shorten the training.",
    ),
    "UnexpectedAdmissionError": _REFUSED,  # a device plug-in had no device
    "TopologyAffinityError": _REFUSED,
    "NodeAffinity": _REFUSED,
    "MatchNodeSelector": _REFUSED,
}
_OUT_OF_A_RESOURCE = "OutOf"  # OutOfcpu, OutOfmemory, OutOfnvidia.com/gpu, …

# Reasons of the condition DisruptionTarget, since Kubernetes 1.26.
DISRUPTION: Mapping[str, Row] = {
    "PreemptionByScheduler": _PREEMPTED,
    "DeletionByTaintManager": _TAINTED,  # often: the node was unreachable or not ready for too long
    "DeletionByPodGC": NODE_LOST,  # the node is gone
    "EvictionByEvictionAPI": _DRAINED,
    "TerminationByKubelet": _EVICTED,  # the pod's own reason is more precise, so it is checked first
}
DISRUPTED = Row(
    Category.KILLED,
    "The cluster ended rank {rank}.",
    _SUBMIT_AGAIN,
    retryable=True,
)


NO_GATES = Diagnosis(
    category=Category.LAUNCH_FAILED,
    summary="The cluster does not know scheduling gates, so pods would start without Kueue.",
    resolution="Use a cluster with Kubernetes 1.27 or later, or remove scheduling.delegate.",
)


def without_service(crash: Diagnosis, service: str) -> Diagnosis:
    """Return the diagnosis of a rank that crashed while the group's Service was missing."""
    row = _SERVICE_DELETED
    return replace(
        crash,
        category=row.category,
        summary=row.summary.format(rank=crash.rank, service=service),
        resolution=row.resolution,
        detail="\n".join(filter(None, (crash.summary, crash.detail))),
        retryable=row.retryable,
    )


def not_fetched(rank: int, code: int, detail: str) -> Diagnosis:
    """Return why the files of a program could not be fetched.

    `code` is the exit code of the init container.
    """
    return _FETCHES.get(code, _NOT_FETCHED).about(rank, detail)


def pod_row(reason: str, message: str) -> Row | None:
    """Return the row for the reason in a pod's status; None if the reason does not explain a pod's end."""
    if reason == "Evicted" and "exceeds" in message:
        return _OVER_ITS_LIMIT
    return _REFUSED if reason.startswith(_OUT_OF_A_RESOURCE) else POD.get(reason)


def ended(rank: int, terminated: Mapping[str, Any], code: int) -> Diagnosis:
    """Return why the training container failed by itself. `terminated` is its state, `code` its exit code."""
    reason, message = terminated.get("reason") or "", _evidence(terminated.get("message") or "")
    if reason == "OOMKilled":
        summary = f"Rank {rank} was killed because it used more memory than its limit or than its node has."
        return Row(Category.OUT_OF_MEMORY, summary, USE_LESS_MEMORY).about(rank, message)
    if reason in ("ContainerCannotRun", "StartError"):  # reasons of Docker, and of containerd and CRI-O
        return _not_started(rank, message)
    if reason in ("ContainerStatusUnknown", "Unknown"):  # the node restarted and lost the container's state
        return NODE_LOST.about(rank, message)
    if code > 128:
        return _ended_by_signal(rank, code - 128, message)
    return exited(rank, code, message)


def _evidence(message: str) -> str:
    # If the log is longer than LONGEST_MESSAGE, the message begins in the middle of a line.
    whole = message if len(message.encode()) < LONGEST_MESSAGE else message.partition("\n")[2] or message
    return evidence_of(whole)


def _not_started(rank: int, message: str) -> Diagnosis:
    if "not found" in message or "no such file or directory" in message:
        return Row(
            Category.COMMAND_NOT_FOUND,
            f"The program of rank {rank} was not found in its image.",
            "Correct algorithms.NAME.kubernetes.command, or add the program to the image.",
        ).about(rank, message)
    return Row(
        Category.COMMAND_NOT_EXECUTABLE,
        f"The program of rank {rank} could not be executed.",
        "Check the program's permissions and format, the processor architecture of the image, and "
        "algorithms.NAME.kubernetes.command.",
    ).about(rank, message)


def _ended_by_signal(rank: int, number: int, message: str) -> Diagnosis:
    name = signal_name(number)
    if number in SENT_FROM_OUTSIDE:
        return Row(
            Category.KILLED,
            f"Rank {rank} was ended by {name}, which the service did not send.",
            "A program on the node killed it, perhaps to free memory. Check the node, then submit the job "
            "again.",
            retryable=True,
        ).about(rank, message)
    return crashed(rank, number, message)


def other_flavor(key: str, wanted: str, value: str) -> Diagnosis:
    """Diagnose that a job asks for nodes that its flavor does not have."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary=f"The job asks for nodes with the label {key}={wanted}, and its flavor has nodes with "
        f"{key}={value}.",
        resolution="Leave the label out of node_selector, or correct kubernetes.flavors. Then submit the job "
        "again.",
    )
