"""Reads the ends of the logs of failed pods.

The kubelet copies only the last 2,048 bytes of a log into the pod's status, but torchrun's message about a
failure is longer.
"""

import asyncio
from contextlib import aclosing, suppress

from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups, PodGroup
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.shared.log_ends import READ_BYTES, READ_LINES
from job_tracker.common.tasks import background
from job_tracker.domain.errors import BackendUnavailable

_SECONDS = 5.0
"""The longest time, in seconds, by which reading the log delays the observation that a rank has failed."""


class LogEnds:
    """Reads the end of the log of a failed pod when `groups` asks for it."""

    def __init__(self, client: KubernetesClient, groups: Groups) -> None:
        self._client = client
        self._groups = groups
        self._reading: set[asyncio.Task[None]] = set()
        self._pods: set[str] = set()
        groups.read_log = self._begin

    async def close(self) -> None:
        """Stop reading."""
        self._groups.read_log = None
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _begin(self, group: PodGroup, rank: int, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            return
        self._pods.add(uid)
        task = background(self._read(group, rank, pod), f"the end of the log of {pod['metadata']['name']}")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        task.add_done_callback(lambda _: self._pods.discard(uid))

    async def _read(self, group: PodGroup, rank: int, pod: Manifest) -> None:
        end = b""
        query: list[tuple[str, str | int]] = [("container", CONTAINER), ("tailLines", READ_LINES)]
        with suppress(BackendUnavailable, TimeoutError):
            async with (
                asyncio.timeout(_SECONDS),
                aclosing(self._client.logs(pod["metadata"]["name"], query, silence=_SECONDS)) as pieces,
            ):
                async for piece in pieces:
                    end = (end + piece)[-READ_BYTES:]
        self._groups.log_was_read(group, rank, pod, end.decode(errors="replace"))
