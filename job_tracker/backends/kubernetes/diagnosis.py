"""What a cluster says went wrong, as tables: the words of Kubernetes, and what they mean to a user. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from job_tracker.backends.shared.evidence import GIVE_IT_LESS, OUT_OF_MEMORY, SENT_FROM_OUTSIDE, signal_name
from job_tracker.backends.shared.log_ends import evidence_of
from job_tracker.domain.diagnosis import Category, Diagnosis

_LONGEST_MESSAGE = 2048
"""Bytes of a log's end that the kubelet keeps (terminationMessagePolicy, FallbackToLogsOnError)."""
_SUBMIT_AGAIN = "Nothing is wrong with the job: submit it again."


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: in `summary`, {rank} is the rank and {container} the container's name."""

    category: Category
    summary: str
    resolution: str
    retryable: bool = False
    mends_itself: bool = True
    """Whether it may pass by itself, so that it is given some time."""

    def about(self, rank: int, detail: str = "", container: str = "") -> Diagnosis:
        """The diagnosis of one rank."""
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
    "Check the name and tag of algorithms.NAME.kubernetes.image, that the nodes reach the registry, and "
    "image_pull_secrets if it wants a login.",
)
_NOT_CREATED = Row(
    Category.CONTAINER_NOT_CREATED,
    "The node cannot create container {container} of rank {rank}.",
    "Read what the node says below; it is mostly about mounts, devices or the runtime class.",
)

# Reasons of a container that waits (kubelet: pkg/kubelet/container/sync_result.go, images/types.go).
WAITING: Mapping[str, Row] = {
    "ErrImagePull": _IMAGE_PULL,  # the pull has just failed
    "ImagePullBackOff": _IMAGE_PULL,  # ... and is tried again later
    "RegistryUnavailable": _IMAGE_PULL,
    "ImageInspectError": _IMAGE_PULL,
    "SignatureValidationFailed": _IMAGE_PULL,
    "ErrImageNeverPull": Row(
        Category.IMAGE_PULL_FAILED,
        "The image of rank {rank} is not on its node, and the pull policy is Never.",
        "Load the image onto every node, or set image_pull_policy to IfNotPresent.",
    ),
    "InvalidImageName": Row(
        Category.INVALID_IMAGE,
        "The image of rank {rank} (container {container}) has a name that cannot be one.",
        "Mend algorithms.NAME.kubernetes.image, or the pod_template that adds the container.",
        mends_itself=False,
    ),
    "CreateContainerConfigError": Row(
        Category.CONTAINER_CONFIG,
        "Container {container} of rank {rank} cannot be configured on its node.",
        "Make the Secret or ConfigMap that is missing; or, if it is about runAsNonRoot, give the image a "
        "numeric USER other than 0, or set run_as_user.",
    ),
    "CreateContainerError": _NOT_CREATED,
    "RunContainerError": _NOT_CREATED,
    "PreCreateHookError": _NOT_CREATED,
    "PreStartHookError": _NOT_CREATED,
    "PostStartHookError": _NOT_CREATED,
}
# A container that waits for one of these is on its way.
ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing"})

NODE_LOST = Row(
    Category.NODE_LOST,
    "The node of rank {rank} is lost, and the rank with it.",
    f"{_SUBMIT_AGAIN} If it happens often, look at the node.",
    retryable=True,
)
_NODE_SHUT_DOWN = Row(
    Category.NODE_LOST,
    "The node of rank {rank} was shut down.",
    _SUBMIT_AGAIN,
    retryable=True,
)
_EVICTED = Row(
    Category.EVICTED,
    "Rank {rank} was evicted: its node ran short of something.",
    "Let the algorithm ask for what it uses (resources of memory and ephemeral-storage), then submit again.",
    retryable=True,
)
_OVER_ITS_LIMIT = Row(
    Category.EVICTED,
    "Rank {rank} was evicted, as it used more disk or shared memory than it may.",
    "Raise scratch_size (HOME, TMPDIR), shm_size (/dev/shm) or resources.ephemeral-storage, or write less.",
)
_DRAINED = Row(
    Category.EVICTED,
    "Rank {rank} was evicted through the API: its node is being drained.",
    _SUBMIT_AGAIN,
    retryable=True,
)
_PREEMPTED = Row(
    Category.PREEMPTED,
    "Rank {rank} had to make room for a pod of higher priority.",
    "Submit the job again, or give it a priority_class of its own.",
    retryable=True,
)
_REFUSED = Row(
    Category.NODE_REFUSED,
    "The node that rank {rank} was sent to refused it.",
    f"Its resources were taken in the meantime. {_SUBMIT_AGAIN}",
    retryable=True,
)
DELETED = Row(
    Category.POD_DELETED,
    "The pod of rank {rank} was deleted, and not by this service.",
    "Submit the job again. The pod was deleted by hand or by a program, or evicted by a drain of its node: "
    "clusters before 1.26 do not tell these apart.",
    retryable=True,
)
_SERVICE_DELETED = Row(
    Category.SERVICE_DELETED,
    "Rank {rank} failed while Service {service} was missing, by which the ranks find each other.",
    "It was deleted, and not by this service, which makes it again. Submit the job again, and look for what "
    "deletes Services in this namespace.",
    retryable=True,
)
NEVER_SEEN = Row(
    Category.UNKNOWN,
    "The pod of rank {rank} failed for a reason that this service does not know.",
    "Read what the cluster says below, and the log.",
)
INIT_FAILED = Row(
    Category.INIT_FAILED,
    "Init container {container} of rank {rank} failed, so the training never started.",
    "It comes from the algorithm's pod_template, or from the cluster: read its log with kubectl logs -c.",
)

# Reasons of a whole pod (`status.reason`), which the kubelet or a controller ended.
POD: Mapping[str, Row] = {
    "Evicted": _EVICTED,
    "Preempting": _PREEMPTED,  # by the kubelet, for a critical pod
    "NodeLost": NODE_LOST,
    "Shutdown": _NODE_SHUT_DOWN,  # up to 1.21
    "NodeShutdown": _NODE_SHUT_DOWN,  # refused by a node that is shutting down
    "Terminated": _NODE_SHUT_DOWN,  # from 1.22
    "DeadlineExceeded": Row(
        Category.DEADLINE_EXCEEDED,
        "Rank {rank} ran for longer than its pod may (activeDeadlineSeconds).",
        "Raise the deadline in the algorithm's pod_template, or train for less.",
    ),
    "UnexpectedAdmissionError": _REFUSED,  # a device plug-in had no device
    "TopologyAffinityError": _REFUSED,
    "NodeAffinity": _REFUSED,
    "MatchNodeSelector": _REFUSED,
}
_OUT_OF_A_RESOURCE = "OutOf"  # OutOfcpu, OutOfmemory, OutOfnvidia.com/gpu, …

# Reasons of the condition DisruptionTarget, from 1.26.
DISRUPTION: Mapping[str, Row] = {
    "PreemptionByScheduler": _PREEMPTED,
    "DeletionByTaintManager": NODE_LOST,  # not ready or unreachable, for longer than is put up with
    "DeletionByPodGC": NODE_LOST,  # the node is gone
    "EvictionByEvictionAPI": _DRAINED,
    "TerminationByKubelet": _EVICTED,  # the pod's own reason says more, and is looked at first
}
DISRUPTED = Row(
    Category.KILLED,
    "The cluster ended rank {rank}.",
    _SUBMIT_AGAIN,
    retryable=True,
)


def without_service(crash: Diagnosis, service: str) -> Diagnosis:
    """The diagnosis of a rank that crashed while the group's Service was missing."""
    row = _SERVICE_DELETED
    return replace(
        crash,
        category=row.category,
        summary=row.summary.format(rank=crash.rank, service=service),
        resolution=row.resolution,
        detail="\n".join(filter(None, (crash.summary, crash.detail))),
        retryable=row.retryable,
    )


def pod_row(reason: str, message: str) -> Row | None:
    """The row of a pod's reason; None if it is not one that ends pods."""
    if reason == "Evicted" and "exceeds" in message:
        return _OVER_ITS_LIMIT
    return _REFUSED if reason.startswith(_OUT_OF_A_RESOURCE) else POD.get(reason)


def ended(rank: int, terminated: Mapping[str, Any], code: int) -> Diagnosis:
    """Why the training container failed by itself, from its terminated state."""
    reason, message = terminated.get("reason") or "", _evidence(terminated.get("message") or "")
    if reason == "OOMKilled":
        summary = f"Rank {rank} was killed, as it used more memory than its limit, or than its node has."
        return Row(Category.OUT_OF_MEMORY, summary, GIVE_IT_LESS).about(rank, message)
    if reason in ("ContainerCannotRun", "StartError"):  # Docker; containerd and CRI-O
        return _not_started(rank, message)
    if reason in ("ContainerStatusUnknown", "Unknown"):  # the node was restarted, and forgot it
        return NODE_LOST.about(rank, message)
    if code > 128:
        return _ended_by_signal(rank, code - 128, message)
    if OUT_OF_MEMORY.search(message):
        summary = f"Rank {rank} ran out of memory and exited with code {code}."
        return Row(Category.OUT_OF_MEMORY, summary, GIVE_IT_LESS).about(rank, message)
    return Row(
        Category.CRASHED,
        f"Rank {rank} exited with code {code}.",
        "Read the end of its log; mend the training code or its parameters, and submit again.",
    ).about(rank, message)


def _evidence(message: str) -> str:
    # Of a log that is longer the message begins in the middle of a line.
    whole = message if len(message.encode()) < _LONGEST_MESSAGE else message.partition("\n")[2] or message
    return evidence_of(whole)


def _not_started(rank: int, message: str) -> Diagnosis:
    if "not found" in message or "no such file or directory" in message:
        return Row(
            Category.COMMAND_NOT_FOUND,
            f"The program of rank {rank} was not found in its image.",
            "Mend algorithms.NAME.kubernetes.command, or put the program into the image.",
        ).about(rank, message)
    return Row(
        Category.COMMAND_NOT_EXECUTABLE,
        f"The program of rank {rank} could not be executed.",
        "Check its permissions and its format (also the processor that the image is for), and "
        "algorithms.NAME.kubernetes.command.",
    ).about(rank, message)


def _ended_by_signal(rank: int, number: int, message: str) -> Diagnosis:
    name = signal_name(number)
    if number in SENT_FROM_OUTSIDE:
        return Row(
            Category.KILLED,
            f"Rank {rank} was ended by {name}, which the service did not send.",
            "Something on the node killed it (for want of memory, perhaps): look there, then submit again.",
            retryable=True,
        ).about(rank, message)
    return Row(
        Category.CRASHED,
        f"Rank {rank} crashed with {name}.",
        "The fault is in native code (an extension, a driver, libraries that do not fit): read its log.",
    ).about(rank, message)
