"""Preflight: the API server checks a job's pod at admission, so that a job with an invalid pod is refused."""

import time
from datetime import UTC, datetime

from job_tracker.backends.kubernetes.api_errors import ApiError
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.common.tasks import SharedWork
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.job_spec import JobSpec

# No job has this id, so the pod's name is unused.
_UNUSED_ID = 0
_TRUSTED_SECONDS = 60.0
_MAX_TRUSTED = 1024


Key = tuple[object, ...]


class DryRun:
    """Checks the parts of a spec that can make a pod invalid, such as the algorithm and the image.

    An accepted combination of these parts is not checked again for a minute. Parameters need no check,
    because they cannot make a pod invalid. Concurrent checks of the same combination share one call.
    """

    def __init__(self, backend: KubernetesBackend) -> None:
        self._backend = backend
        self._accepted: dict[Key, float] = {}
        self._asking: SharedWork[Key, None] = SharedWork()

    async def check(self, spec: JobSpec) -> None:
        """Raise InvalidField if the API server would refuse the pod.

        If this is unknown, for example because the server is unreachable, the job is accepted.
        """
        key = _key_of(spec)
        if time.monotonic() - self._accepted.get(key, -_TRUSTED_SECONDS) < _TRUSTED_SECONDS:
            return
        await self._asking.do(key, lambda: self._ask(key, spec), "preflight")

    async def _ask(self, key: Key, spec: JobSpec) -> None:
        now = datetime.now(UTC)
        job = Job(id=_UNUSED_ID, version=1, spec=spec, state=JobState.LAUNCHING, submitted_at=now, attempt=1)
        try:
            await self._backend.check(job)
        except (ApiError, BackendUnavailable):
            return
        self._accepted.pop(key, None)
        if len(self._accepted) >= _MAX_TRUSTED:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[key] = time.monotonic()


def _key_of(spec: JobSpec) -> Key:
    return (
        *(spec.algorithm, spec.algorithm_version, spec.group.trainers.image),
        *(repr(spec.pod_options), spec.instances > 1, spec.queue),
    )
