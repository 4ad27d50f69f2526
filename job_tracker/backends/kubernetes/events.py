"""What becomes of a job, told where people look at pods: Events on the master, for `kubectl describe pod`.

They are for reading only: nothing waits for them, nothing fails without them, and what was not told in
time is not told at all. Each has a name that says what it tells, so that one which is told again, as
after a restart, is not there twice.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
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

_MOST_UNTOLD = 1000
_MOST_MASTERS = 10_000
_LONGEST_MESSAGE = 1024  # of the API
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Happening:
    """What an Event tells; `reason` is the word that people and programs look for."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


def happening(before: Job, after: Job) -> Happening | None:
    """What is new about the group of the job's current attempt; None if nothing that people care for.

    An end is told when it is decided, since the pods are still there then.
    """
    if after.state is JobState.LAUNCHING and before.state is not after.state:
        return Happening("Launching", f"Launching {_instances(after)}, {_attempt(after)}.")
    if after.state is JobState.RUNNING and before.state is not after.state:
        return Happening("Running", f"The master runs, {_attempt(after)}.")
    if before.state.is_live and after.state is JobState.CANCELLED:
        return Happening("Cancelled", "The job was cancelled on request.")
    if after.state.is_live and after.ending is not None and before.ending is None:
        return _decided(after, after.ending)
    return None


def event_of(
    job: Job, what: Happening, at: datetime, uid: str | None, settings: KubernetesSettings
) -> Manifest:
    """The Event on the job's master pod, whose uid is needed for `kubectl describe` to find it."""
    pod = naming.instance_name(job.group.name, MASTER_RANK)
    # Job 1 of an earlier store has our names, and its Events may still be there.
    digest = hashlib.sha256(job.submitted_at.isoformat().encode()).hexdigest()[:_DIGEST_LENGTH]
    involved = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": settings.namespace}
    moment = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod}.{what.reason.lower()}.{digest}",
            "namespace": settings.namespace,
            "labels": group_labels(job, settings.instance),
        },
        "involvedObject": {**involved, "uid": uid} if uid else involved,
        "reason": what.reason,
        "message": _clipped(what.message),
        "type": what.type,
        "source": {"component": MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


class EventRecorder:
    """Tells what becomes of jobs, one Event after the other, beside the work on them."""

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
        self._held: dict[GroupRef, list[tuple[Happening, datetime]]] = {}
        self._untold: deque[Manifest] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._trouble = ""

    def job_saved(self, before: Job, after: Job) -> None:
        master, news = self._master_of(after.group), self._held.pop(after.group, [])
        if what := happening(before, after):
            news.append((what, self._clock()))
        if news and master is None and after.state.is_live and after.ending is None:
            # The launch is written before there is a pod. With the pod, the job is written again.
            self._held[after.group] = news
        else:
            for what, at in news:
                self._put(event_of(after, what, at, master, self._settings))
        if not after.state.is_live:
            self._masters.pop(after.group, None)

    async def flush(self) -> None:
        """Wait until all is told, or given up."""
        if self._telling is not None:
            await asyncio.wait([self._telling])

    async def close(self) -> None:
        """Tell nothing more."""
        if self._telling is not None:
            await end(self._telling)

    def _master_of(self, ref: GroupRef) -> str | None:
        """The uid of the group's master, if it is there or was.

        When the end of a cancelled job is written, the pod is gone.
        """
        group = self._groups.get(ref)
        if group is not None and MASTER_RANK in group.pods:
            self._masters[ref] = group.pods[MASTER_RANK]["metadata"]["uid"]
            if len(self._masters) > _MOST_MASTERS:  # of jobs that other replicas have seen to their end
                del self._masters[next(iter(self._masters))]
        return self._masters.get(ref)

    def _put(self, event: Manifest) -> None:
        if len(self._untold) >= _MOST_UNTOLD:
            return
        self._untold.append(event)
        if self._telling is None or self._telling.done():
            self._telling = background(self._tell(), "events", detached=True)

    async def _tell(self) -> None:
        while self._untold:
            try:
                await self._client.record(self._untold.popleft())
                self._trouble = ""
            except AlreadyExists:
                pass
            except (ApiError, BackendRefused) as error:
                if str(error) != self._trouble:
                    log.warning("events cannot be told: %s", error)
                self._trouble = str(error)


def _decided(job: Job, ending: Ending) -> Happening | None:
    why = f"{ending.diagnosis.summary} {ending.diagnosis.resolution}" if ending.diagnosis else ""
    match ending.state:
        case JobState.SUCCEEDED:
            return Happening("Succeeded", f"The master has exited with 0, {_attempt(job)}.")
        case JobState.FAILED:
            return Happening("Failed", f"{why} No attempt follows {_attempt(job)}.", "Warning")
        case JobState.BACKOFF:
            return Happening("Retrying", f"{why} Another attempt follows {_attempt(job)}.", "Warning")
        case _:
            return None  # a cancel is told when it is done


def _instances(job: Job) -> str:
    return f"{job.spec.instances} instance{'s' if job.spec.instances > 1 else ''}"


def _attempt(job: Job) -> str:
    return f"attempt {job.attempt} of at most {job.spec.retry.max_attempts}"


def _clipped(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _LONGEST_MESSAGE:
        return message
    return encoded[: _LONGEST_MESSAGE - 4].decode(errors="ignore") + " …"
