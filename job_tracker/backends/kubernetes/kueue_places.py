"""The places of groups in Kueue's queues, read from Kueue's visibility API.

This API is optional: it is an aggregated API server, and the service needs a separate right to use it.
Without the API, the places are unknown.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from job_tracker.backends.kubernetes.api_errors import ApiError
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.kueue import Place, places_in

_WITHOUT_SECONDS: Final = 300.0
"""The seconds until the API is asked again after a call to it has failed."""


class Places:
    """Reads the places of all groups in a LocalQueue together, at most once every `seconds`."""

    def __init__(self, client: KubernetesClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._known: dict[str, Mapping[str, Place]] = {}
        self._due: dict[str, float] = {}
        self._reading = asyncio.Lock()

    async def of(self, local_queue: str, group: str) -> Place | None:
        """Return the place of the Workload of a group; None: it is unknown, or the group does not wait."""
        async with self._reading:
            if time.monotonic() >= self._due.get(local_queue, 0.0):
                await self._read(local_queue)
        return self._known[local_queue].get(group)

    async def _read(self, local_queue: str) -> None:
        seconds = self._seconds
        try:
            self._known[local_queue] = places_in(await self._client.pending_workloads(local_queue))
        except ApiError:
            self._known[local_queue], seconds = {}, _WITHOUT_SECONDS
        self._due[local_queue] = time.monotonic() + seconds
