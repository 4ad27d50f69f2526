"""Pulls images before containers are created from them."""

import asyncio
import logging
import time

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.engine_errors import EngineError, Unreachable
from job_tracker.backends.docker.options import Pull
from job_tracker.backends.docker.refusals import image_missing
from job_tracker.common.tasks import end
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed

log = logging.getLogger(__name__)

_PATIENCE = 5.0
_REPEATED_SECONDS = 60.0
"""A pull that ended this long ago, and whose result no launch has used, is abandoned.

The time is longer than the tracker's pause before it repeats a launch.
"""


class _SharedPull:
    """A pull that continues even if the launches that wait for it are cancelled."""

    def __init__(self, client: DockerClient, image: str) -> None:
        self.task = asyncio.create_task(client.pull(image), name=f"pull {image}")
        self._ended_at: float | None = None
        self.task.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        self._ended_at = time.monotonic()

    @property
    def is_abandoned(self) -> bool:
        """Whether the pull ended long ago, and no launch has used its result: the job was cancelled."""
        return self._ended_at is not None and time.monotonic() - self._ended_at > _REPEATED_SECONDS


class Images:
    """Pulls images. Callers that need the same image share one pull."""

    def __init__(self, client: DockerClient) -> None:
        self._client = client
        self._pulls: dict[str, _SharedPull] = {}

    async def ensure(self, image: str, pull: Pull) -> None:
        """Ensure that the engine has the image. `pull` says whether to pull it: always, if missing, or never.

        Raises LaunchFailed if the pull fails, or if the image is missing and must not be pulled. Raises
        BackendUnavailable if the engine cannot be reached, or if the pull takes more than a few seconds. A
        slow pull continues, and the caller repeats the launch. So the job can be cancelled in the meantime.
        """
        self._forget_abandoned()
        if image not in self._pulls:
            if pull != "always" and await self._client.has_image(image):
                return
            if pull == "never":
                raise LaunchFailed(image_missing(image, pull, ""))
        if image not in self._pulls:  # another caller may have begun the pull during `has_image`
            self._pulls[image] = _SharedPull(self._client, image)
        running = self._pulls[image]
        done, _ = await asyncio.wait([running.task], timeout=_PATIENCE)
        if not done:
            raise BackendUnavailable(f"the image {image} is still being pulled")
        if self._pulls.get(image) is running:
            del self._pulls[image]
        try:
            running.task.result()
        except Unreachable:
            raise
        except EngineError as error:
            raise LaunchFailed(image_missing(image, pull, error.message)) from error

    def _forget_abandoned(self) -> None:
        for image, pull in [*self._pulls.items()]:
            if pull.is_abandoned:
                del self._pulls[image]
                if not pull.task.cancelled() and (error := pull.task.exception()) is not None:
                    log.info("the pull of image %s, which no job needs any more, failed: %s", image, error)

    async def close(self) -> None:
        """Cancel the calls that pull images."""
        await end(*(pull.task for pull in self._pulls.values()))
