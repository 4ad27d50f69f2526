"""Pulls images before containers are created from them."""

import asyncio

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.engine_errors import EngineError, Unreachable
from job_tracker.backends.docker.options import Pull
from job_tracker.backends.docker.refusals import image_missing
from job_tracker.common.tasks import end
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed

_PATIENCE = 5.0


class Images:
    """Pulls images.

    Callers that need the same image share one pull. The pull continues if the callers are cancelled.
    """

    def __init__(self, client: DockerClient) -> None:
        self._client = client
        self._pulls: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, image: str, pull: Pull) -> None:
        """Ensure that the engine has the image. `pull` says whether to pull it: always, if missing, or never.

        Raises LaunchFailed if the pull fails, or if the image is missing and must not be pulled. Raises
        BackendUnavailable if the pull takes more than a few seconds. In this case the pull continues and the
        caller repeats the launch, so that the job can be cancelled in the meantime.
        """
        running = self._pulls.get(image)
        if running is None:
            if pull != "always" and await self._client.has_image(image):
                return
            if pull == "never":
                raise LaunchFailed(image_missing(image, pull, ""))
            running = self._pulls[image] = asyncio.create_task(self._client.pull(image), name=f"pull {image}")
        done, _ = await asyncio.wait([running], timeout=_PATIENCE)
        if not done:
            raise BackendUnavailable(f"the image {image} is still being pulled")
        self._pulls.pop(image, None)
        try:
            running.result()
        except Unreachable:
            raise
        except EngineError as error:
            raise LaunchFailed(image_missing(image, pull, error.message)) from error

    async def close(self) -> None:
        """Cancel the calls that pull images."""
        await end(*self._pulls.values())
