"""Records the changes of jobs as Kubernetes Events about the master pod, for `kubectl describe pod`.

Events are for people only. The service never waits for them and works without them; Events are dropped if too
many are queued. The name of an Event identifies its content, so that a repetition after a restart creates no
duplicate.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from job_tracker.backends.kubernetes.api_errors import AlreadyExists, ApiError
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.shared.labels import MANAGER, group_labels
from job_tracker.common.tasks import background, end
from job_tracker.domain import naming
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.group import MASTER_RANK, GroupRef
from job_tracker.domain.job import Ending, Job, JobState

log = logging.getLogger(__name__)

_MAX_QUEUED = 1000
_MAX_MASTERS = 10_000
_LONGEST_MESSAGE = 1024  # a limit of the API
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The content of an Event. `reason` is one word, such as `Launching`."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    code: str = ""
    """A string that distinguishes Events with the same reason."""


def job_event(before: Job, after: Job) -> JobEvent | None:
    """Return the Event about the change of a job from `before` to `after`.

    None: the change is not worth an Event. An ending is reported when it is decided, while the pods still
    exist. Only a cancellation is reported when it is complete.
    """
    if after.state is JobState.LAUNCHING and before.state is not after.state:
        return JobEvent("Launching", f"Launching {_instances(after)}, {_attempt(after)}.")
    if after.state is JobState.RUNNING and before.state is not after.state:
        return JobEvent("Running", f"The master is running, {_attempt(after)}.")
    if before.state.is_live and after.state is JobState.CANCELLED:
        return JobEvent("Cancelled", "The job was cancelled on request.")
    # A job that is being preempted, resized or evicted may end by itself first. That ending is new, too.
    is_new = before.ending is None or (bool(before.interrupted) and not after.interrupted)
    if after.state.is_live and after.ending is not None and is_new:
        return _decided(after, after.ending)
    return None


def event_manifest(
    job: Job, event: JobEvent, at: datetime, uid: str | None, settings: KubernetesSettings
) -> Manifest:
    """Return the manifest of an Event about the job's master pod.

    `uid` is the pod's uid; None if it is unknown. `kubectl describe` finds the Event only by this uid.
    """
    pod = naming.instance_name(job.group.name, MASTER_RANK)
    # A job with the same id in an earlier store had the same names, and its Events may still exist.
    digest = hashlib.sha256(job.submitted_at.isoformat().encode()).hexdigest()[:_DIGEST_LENGTH]
    involved = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": settings.namespace}
    moment = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod}.{_key(event)}.{digest}",
            "namespace": settings.namespace,
            "labels": group_labels(job, settings.instance),
        },
        "involvedObject": {**involved, "uid": uid} if uid else involved,
        "reason": event.reason,
        "message": _clipped(event.message),
        "type": event.type,
        "source": {"component": MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


class EventRecorder:
    """Records the changes of jobs, one Event after the other, in the background."""

    def __init__(
        self,
        client: KubernetesClient,
        groups: Groups,
        settings: KubernetesSettings,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._groups = groups
        self._settings = settings
        self._clock = clock
        self._masters: dict[GroupRef, str] = {}
        self._waiting: dict[GroupRef, list[tuple[JobEvent, datetime]]] = {}
        self._queue: deque[Manifest] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._last_error = ""

    def job_saved(self, before: Job, after: Job) -> None:
        master, news = self._master_of(after.group), self._waiting.pop(after.group, [])
        if event := job_event(before, after):
            news.append((event, self._clock()))
        if news and master is None and after.state.is_live and after.ending is None:
            # The launch is stored before the pod exists. So the Event waits until the job is stored again.
            self._waiting[after.group] = news
        else:
            for event, at in news:
                self._put(event_manifest(after, event, at, master, self._settings))
        if not after.state.is_live:
            self._masters.pop(after.group, None)

    def job_waits(self, job: Job, code: str, sentence: str) -> None:
        # The Event is about the pod of the next attempt, which does not exist yet. So the Event is shown
        # only by `kubectl get events`.
        coming = replace(job, attempt=job.attempt + 1)
        event = JobEvent("Waiting", f"{code}: {sentence}", code=code)
        self._put(event_manifest(coming, event, self._clock(), None, self._settings))

    async def flush(self) -> None:
        """Wait until all Events are sent or dropped."""
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def close(self) -> None:
        """Stop sending."""
        if self._sending is not None:
            await end(self._sending)

    def _master_of(self, ref: GroupRef) -> str | None:
        """Return the uid of the group's master pod; None if the pod was never seen.

        The uid is remembered, because the pod of a cancelled job is gone by the time the job's end is saved.
        """
        group = self._groups.get(ref)
        if group is not None and MASTER_RANK in group.pods:
            self._masters[ref] = group.pods[MASTER_RANK]["metadata"]["uid"]
            if len(self._masters) > _MAX_MASTERS:  # jobs that another replica ended are still here
                del self._masters[next(iter(self._masters))]
        return self._masters.get(ref)

    def _put(self, event: Manifest) -> None:
        if len(self._queue) >= _MAX_QUEUED:
            return
        self._queue.append(event)
        if self._sending is None or self._sending.done():
            self._sending = background(self._send(), "events", detached=True)

    async def _send(self) -> None:
        while self._queue:
            try:
                await self._client.record(self._queue.popleft())
                self._last_error = ""
            except AlreadyExists:
                pass
            except (ApiError, BackendRefused) as error:
                if str(error) != self._last_error:
                    log.warning("Events cannot be created: %s", error)
                self._last_error = str(error)


def _key(event: JobEvent) -> str:
    """Return the part of the Event's name that identifies its content."""
    code = event.code.replace("_", "-")
    return f"{event.reason.lower()}-{code}" if code else event.reason.lower()


def _decided(job: Job, ending: Ending) -> JobEvent | None:
    reason = f"{ending.diagnosis.summary} {ending.diagnosis.resolution}" if ending.diagnosis else ""
    match ending.state:
        case JobState.SUCCEEDED:
            return JobEvent("Succeeded", f"The master exited with code 0, {_attempt(job)}.")
        case JobState.FAILED:
            return JobEvent("Failed", f"{reason} No attempt follows {_attempt(job)}.", "Warning")
        case JobState.BACKOFF:
            return JobEvent("Retrying", f"{reason} Another attempt follows {_attempt(job)}.", "Warning")
        case JobState.QUEUED if ending.preemption is not None:
            why = ending.preemption.sentence(job.spec.project)
            name = "Resized" if ending.preemption.is_resize else "Preempted"
            return JobEvent(name, f"{why} The job is queued again after {_attempt(job)}.")
        case JobState.QUEUED if ending.eviction is not None:
            why = ending.eviction.sentence()
            return JobEvent("Evicted", f"{why} The job is queued again after {_attempt(job)}.")
        case _:
            return None  # a cancellation is reported when it is complete


def _instances(job: Job) -> str:
    return f"{job.instances} instance{'s' if job.instances > 1 else ''}"


def _attempt(job: Job) -> str:
    return f"attempt {job.attempt} of at most {job.max_attempts}"


def _clipped(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _LONGEST_MESSAGE:
        return message
    return encoded[: _LONGEST_MESSAGE - 4].decode(errors="ignore") + " …"
