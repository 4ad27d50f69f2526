"""Finds the state of a rank from the state of its pod, and a diagnosis if the rank failed.

Only the *training* container counts: a sidecar may keep its pod "Running" for ever, and a pod that is being
deleted may be in any phase. This module has no I/O.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from job_tracker.backends.base import RankObservation
from job_tracker.backends.kubernetes import diagnosis
from job_tracker.backends.kubernetes.diagnosis import Row
from job_tracker.backends.kubernetes.kueue import EVICTED, is_gated
from job_tracker.backends.kubernetes.labels import Manifest, planned_place
from job_tracker.backends.kubernetes.manifests import FETCH
from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import Phase, RankStatus

START_GRACE = timedelta(seconds=60)
NODE_GRACE = timedelta(minutes=5)
PLACE_GRACE = timedelta(seconds=30)
_MAX_NOTE = 400


def program_of(pod: Manifest | None) -> str:
    """Return the image of the pod's training container, with its digest once the node has reported it; ""
    without a pod.
    """
    if pod is None:
        return ""
    containers = pod["spec"].get("containers") or ()
    image = next((each["image"] for each in containers if each["name"] == CONTAINER), "")
    exact = _training_status(pod).get("imageID") or ""
    digest = exact.rpartition("sha256:")[2]
    return f"{image} (sha256:{digest})" if "sha256:" in exact else str(image)


def observe_rank(
    rank: int,
    pod: Manifest | None,
    now: datetime,
    *,
    gone: bool = False,
    launching: bool = False,
    stopping: bool = False,
    start_grace: timedelta = START_GRACE,
    node_grace: timedelta = NODE_GRACE,
    place_grace: timedelta = PLACE_GRACE,
    notice: Eviction | None = None,
    orphaned: bool = False,
    gate_note: str = "",
) -> RankObservation:
    """Return the state of one rank, with a diagnosis if it failed.

    `pod` is None if the rank's pod was never seen. If the group is then neither being launched (`launching`)
    nor being stopped (`stopping`), the pod was deleted from outside (not by this service). If the pod is
    `gone`, `pod` is its last known state, which may explain why it was deleted.

    `start_grace` is the time that a failing image pull or container creation may last, `node_grace` the time
    that a node may be silent, and `place_grace` the time for which a chosen node may lack room for the pod.

    `notice` is the eviction that was seen before; a pod that is gone no longer shows it. `orphaned` says
    that the pod of the master was never seen. The master is created first, so it must have been deleted. The
    cluster is about to delete this pod, too, because the master owned it. `gate_note` is the reason why a pod
    waits for Kueue.
    """
    if pod is None:
        return _missing(rank, launching=launching, stopping=stopping)
    end = _training_state(pod).get("terminated")
    if notice is not None:
        return _stopped(rank, pod, end) if stopping else _evicted(rank, pod, end, notice)
    removal = _removal_of(pod, now, gone=gone)
    if end is not None and (removal is None or removal.came_after(end)):
        return _ended(rank, end)
    if removal is not None:
        if stopping:
            return _stopped(rank, pod, end)
        is_cascade = orphaned and removal.row is diagnosis.DELETED
        notice = None if is_cascade else removal.notice(rank, pod, now)
        return _evicted(rank, pod, end, notice) if notice else _failed(rank, removal.about(rank), end)
    match _status(pod).get("phase"):
        case "Succeeded":
            return RankObservation(RankStatus(rank, Phase.SUCCEEDED, 0))
        case "Failed":
            return _failed(rank, _never_started(rank, pod))
    if "running" in _training_state(pod):
        if not node_is_silent(pod):
            machine = pod["spec"].get("nodeName") or ""
            return RankObservation(RankStatus(rank, Phase.RUNNING), machine=machine)
        # Kubernetes deletes the pods of a silent node after a while, but not if most nodes of a zone are
        # silent. So the service has a limit of its own.
        since = _moment(_condition(pod, "Ready").get("lastTransitionTime")) or now
        if now - since >= node_grace:
            return _failed(rank, diagnosis.NODE_LOST.about(rank, f"no contact since {since.isoformat()}"))
        return RankObservation(RankStatus(rank, Phase.RUNNING, note="Its node does not answer"))
    if is_gated(pod):
        note = gate_note or "Waits for Kueue"
        return RankObservation(RankStatus(rank, Phase.PENDING, note=note[:_MAX_NOTE], is_gated=True))
    wait = _bad_wait(pod)
    row = diagnosis.WAITING.get(wait.reason) if wait and diagnosis.NOT_READ_YET not in wait.text else None
    if wait and row and (not row.may_recover or now - _tried_since(pod, now) >= start_grace):
        return _failed(rank, row.about(rank, wait.text, wait.container))
    unplaced = _unplaced_since(pod)
    if planned_place(pod) and unplaced is not None and now - unplaced >= place_grace:
        return _failed(rank, diagnosis.PLACE_TAKEN.about(rank, pending_reason(pod) or ""))
    # All other reasons to wait, even unknown ones, may be temporary.
    return RankObservation(RankStatus(rank, Phase.PENDING, note=pending_reason(pod) or ""))


def pending_reason(pod: Manifest) -> str | None:
    """Return why the pod's training has not started, in the cluster's words.

    None: the training is starting normally.
    """
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _joined(scheduled.get("reason"), scheduled.get("message"))[:_MAX_NOTE]
    wait = _bad_wait(pod)
    return wait.text[:_MAX_NOTE] if wait else None


def end_is_cut(pod: Manifest) -> bool:
    """Return whether the training failed, and its termination message has the kubelet's maximum length.

    In this case, the message may lack a part of the evidence.
    """
    end = _training_state(pod).get("terminated") or {}
    message = end.get("message") or ""
    return _exit_code(end) != 0 and len(message.encode()) >= diagnosis.LONGEST_MESSAGE


def with_message(pod: Manifest, message: str) -> Manifest:
    """Return the pod with this message as the termination message of its training container."""
    statuses = [
        {**each, "state": {"terminated": {**each["state"]["terminated"], "message": message}}}
        if each["name"] == CONTAINER and "terminated" in each["state"]
        else each
        for each in _status(pod).get("containerStatuses") or ()
    ]
    return {**pod, "status": {**_status(pod), "containerStatuses": statuses}}


def _missing(rank: int, *, launching: bool, stopping: bool) -> RankObservation:
    if stopping:
        return RankObservation(RankStatus(rank, Phase.STOPPED))
    if launching:
        return RankObservation(RankStatus(rank, Phase.PENDING))
    return _failed(rank, diagnosis.DELETED.about(rank))


def _ended(rank: int, end: Manifest) -> RankObservation:
    code = _exit_code(end)
    if code == 0:
        return RankObservation(RankStatus(rank, Phase.SUCCEEDED, 0), ended_at=_ended_at(end))
    return _failed(rank, diagnosis.ended(rank, end, code), end)


def _stopped(rank: int, pod: Manifest, end: Manifest | None) -> RankObservation:
    """Return the state of a rank whose group is being stopped.

    The rank counts as ended once its container or its pod has ended.
    """
    if end is None and _status(pod).get("phase") not in ("Succeeded", "Failed"):
        phase = Phase.RUNNING if "running" in _training_state(pod) else Phase.PENDING
        return RankObservation(RankStatus(rank, phase))
    return RankObservation(RankStatus(rank, Phase.STOPPED, None if end is None else _exit_code(end)))


def _evicted(rank: int, pod: Manifest, end: Manifest | None, notice: Eviction) -> RankObservation:
    """Return the state of an evicted rank. It counts as running as long as its container runs."""
    seen = _stopped(rank, pod, end)
    is_over = end is None and _status(pod).get("phase") == "Failed"
    if is_over and "running" in _training_state(pod):  # the phase changes before the processes end
        seen = RankObservation(RankStatus(rank, Phase.RUNNING))
    return replace(seen, machine=notice.machine, eviction=notice)


def _failed(rank: int, why: Diagnosis, end: Manifest | None = None) -> RankObservation:
    if end is None:
        return RankObservation(RankStatus(rank, Phase.FAILED), why)
    return RankObservation(RankStatus(rank, Phase.FAILED, _exit_code(end)), why, _ended_at(end))


def _ended_at(end: Manifest) -> float | None:
    finished = _moment(end.get("finishedAt"))
    return finished.timestamp() if finished else None


def _never_started(rank: int, pod: Manifest) -> Diagnosis:
    """Return why a pod failed without a reported end of its training container."""
    for status in _status(pod).get("initContainerStatuses") or ():
        end = status.get("state", {}).get("terminated")
        if end is not None and _exit_code(end) != 0:
            detail = _joined(f"exit code {_exit_code(end)}", end.get("message"))
            if status["name"] == FETCH:
                return diagnosis.not_fetched(rank, _exit_code(end), detail)
            return diagnosis.INIT_FAILED.about(rank, detail, status["name"])
    return diagnosis.NEVER_SEEN.about(rank, _joined(_status(pod).get("reason"), _status(pod).get("message")))


@dataclass(frozen=True, slots=True)
class _Removal:
    """The removal of a pod from outside: its row in the tables of diagnosis.py, its reason in the cluster's
    words, and the time when it began, if known.
    """

    row: Row
    detail: str
    since: datetime | None

    def came_after(self, end: Manifest) -> bool:
        """Return whether the removal came after the container had ended by itself.

        Times are in whole seconds. An end in the same second counts as caused by the removal: a program
        that exits with code 0 on SIGTERM has not finished its training.
        """
        finished = _moment(end.get("finishedAt"))
        return finished is not None and self.since is not None and finished < self.since

    def about(self, rank: int) -> Diagnosis:
        return self.row.about(rank, self.detail)

    def notice(self, rank: int, pod: Manifest, now: datetime) -> Eviction | None:
        """Return the removal as an eviction of the pod; None if it is not an eviction, or if the pod's
        processes got no notice or no time to end.
        """
        if self.row.eviction is None or node_is_silent(pod):
            return None
        is_deleted = "deletionTimestamp" in pod["metadata"]
        at_once = is_deleted and not pod["metadata"].get("deletionGracePeriodSeconds")
        # Pods that never ran are deleted at once. If Kueue deletes them, they count as evicted, too.
        if at_once and self.row is not diagnosis.BY_KUEUE:
            return None
        if self.row is diagnosis.DELETED and not is_deleted:
            return None  # the pod is gone, and its deletion was not seen
        return Eviction(
            why=self.row.eviction,
            at=self.since or now,
            rank=rank,
            machine=(pod.get("spec") or {}).get("nodeName") or "",
            detail=self.detail[:_MAX_NOTE],
        )


def _removal_of(pod: Manifest, now: datetime, *, gone: bool) -> _Removal | None:
    """Return the removal that has ended the pod from outside, or is about to end it.

    None: there is no removal.
    """
    status, disruption = _status(pod), _condition(pod, "DisruptionTarget")
    disrupted = disruption.get("status") == "True"
    by_kueue = _condition(pod, EVICTED)
    conditions = [each for each in (disruption, by_kueue) if each.get("status") == "True"]
    asked = _deletion_asked_at(pod)
    times = [asked, *(_moment(each.get("lastTransitionTime")) for each in conditions)]
    since = min((time for time in times if time is not None), default=None)

    reason, message = status.get("reason") or "", status.get("message") or ""
    row = diagnosis.pod_row(reason, message)
    if row is not None:
        return _Removal(row, _joined(reason, message), since)
    if by_kueue in conditions:
        detail = _joined(by_kueue.get("reason"), by_kueue.get("message"))
        return _Removal(diagnosis.BY_KUEUE, detail, since)
    if disrupted:
        row = diagnosis.DISRUPTION.get(disruption.get("reason") or "", diagnosis.DISRUPTED)
        return _Removal(row, _joined(disruption.get("reason"), disruption.get("message")), since)
    if asked is not None or gone:
        # Up to Kubernetes 1.25, only the node's silence distinguishes a lost node from `kubectl delete`.
        return _Removal(diagnosis.NODE_LOST if node_is_silent(pod) else diagnosis.DELETED, message, since)
    if status.get("phase") == "Unknown":
        return _Removal(diagnosis.NODE_LOST, _joined(reason, message), now)
    return None


def _deletion_asked_at(pod: Manifest) -> datetime | None:
    """Return when the deletion of the pod was requested; None if it was not."""
    deadline = deletion_deadline(pod)
    grace = timedelta(seconds=pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    return deadline - grace if deadline else None


def deletion_deadline(pod: Manifest) -> datetime | None:
    """Return when the grace period of the pod's deletion ends; None if the pod is not being deleted."""
    return _moment(pod["metadata"].get("deletionTimestamp"))


def node_is_silent(pod: Manifest) -> bool:
    """Return whether the control plane has lost contact with the pod's node.

    After such a loss, the control plane marks the pod as not ready (as unknown in old versions), and leaves
    all other parts of the status as the kubelet last wrote them.
    """
    ready = _condition(pod, "Ready").get("status")
    if ready == "False" and not pod.get("spec", {}).get("readinessGates"):
        return bool(_condition(pod, "ContainersReady").get("status") == "True")
    return bool(ready == "Unknown")


@dataclass(frozen=True, slots=True)
class _Wait:
    container: str
    reason: str
    text: str


def _bad_wait(pod: Manifest) -> _Wait | None:
    """Return the reason why a container that the training needs cannot start; None if there is none."""
    for status in _needed_statuses(pod):
        waiting = status.get("state", {}).get("waiting")
        if waiting is not None and waiting.get("reason") not in (None, *diagnosis.ON_ITS_WAY):
            text = _joined(waiting["reason"], waiting.get("message"))
            return _Wait(status["name"], waiting["reason"], text)
    return None


def _needed_statuses(pod: Manifest) -> Iterator[Manifest]:
    yield from _status(pod).get("initContainerStatuses") or ()
    yield from (each for each in _status(pod).get("containerStatuses") or () if each["name"] == CONTAINER)


def _unplaced_since(pod: Manifest) -> datetime | None:
    """Return the time since which no node has had room for the pod; None if no lack of room is reported."""
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return None
    return _moment(scheduled.get("lastTransitionTime")) or _moment(pod["metadata"].get("creationTimestamp"))


def _tried_since(pod: Manifest, now: datetime) -> datetime:
    """Return the time since which a node has been trying to start the pod.

    The waiting states themselves have no times.
    """
    scheduled = _condition(pod, "PodScheduled")
    return _moment(_status(pod).get("startTime")) or _moment(scheduled.get("lastTransitionTime")) or now


def _training_state(pod: Manifest) -> Mapping[str, Any]:
    return _training_status(pod).get("state") or {}


def _training_status(pod: Manifest) -> Mapping[str, Any]:
    statuses = _status(pod).get("containerStatuses") or ()
    return next((each for each in statuses if each["name"] == CONTAINER), {})


def _exit_code(end: Manifest) -> int:
    code, signal = end.get("exitCode") or 0, end.get("signal") or 0
    return int(code) or (128 + int(signal) if signal else 0)


def _condition(pod: Manifest, kind: str) -> Manifest:
    conditions = _status(pod).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _status(pod: Manifest) -> Manifest:
    return pod.get("status") or {}


def _joined(reason: str | None, message: str | None) -> str:
    return ": ".join(part for part in (reason, message) if part)


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
