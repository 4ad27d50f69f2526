"""Reads the Workloads of waiting groups, and removes Workloads that Kueue would not finish by itself.

The Workload of a group has the group's name, and is read by this name periodically while the group waits. So
the service needs no right to list Workloads.
"""

import asyncio
import logging
import time
from typing import Final

from job_tracker.backends.kubernetes.api_errors import ApiError, Forbidden, NotFound
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import Groups, PodGroup
from job_tracker.backends.kubernetes.kueue import (
    WORKLOADS,
    is_gated,
    is_held,
    is_of,
    queue_of,
    waiting_note,
)
from job_tracker.backends.kubernetes.kueue_places import Places
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.common.tasks import background
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)

_NO_RIGHT: Final = "Waits for Kueue. The service may not read its Workload (see deploy/optional/kueue)"


class Workloads:
    """Reads Kueue's messages for a waiting group when it is observed, at most once every `seconds`."""

    def __init__(self, client: KubernetesClient, groups: Groups, *, seconds: float = 10.0) -> None:
        self._client = client
        self._groups = groups
        self._places = Places(client, seconds)
        self._seconds = seconds
        self._reading: dict[GroupRef, asyncio.Task[None]] = {}
        groups.read_gate = self._begin

    async def release(self, group: PodGroup, *, is_marked: bool = True, has_lost: bool = False) -> None:
        """Delete the Workload of a group that is being stopped, if Kueue would never release its pods.

        A finalizer of Kueue holds the pods until all of them have ended and one of them has the mark of a
        stop (`is_marked`). Pods that never ran or are lost (`has_lost`) never end. So if the group has such
        pods, or no pod has the mark, the Workload is deleted. Kueue then also releases pods
        that are kept for inspection (keeping.py).
        """
        if is_marked and not has_lost and not any(is_held(pod) for pod in group.living.values()):
            return
        try:
            found = await self._find(group)
            if found is not None:
                await self._client.delete(WORKLOADS, group.ref.name, found["metadata"]["uid"])
        except NotFound:
            return
        except Forbidden as error:
            log.warning(
                "%s: Kueue may release its pods late, since the service may not delete its Workload: %s",
                group.ref.name,
                error,
            )

    async def close(self) -> None:
        """Stop reading."""
        self._groups.read_gate = None
        reading = list(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    def _begin(self, group: PodGroup) -> None:
        if group.ref in self._reading or time.monotonic() < group.gate_read_at + self._seconds:
            return
        task = background(self._read(group), f"the Workload of {group.ref.name}")
        self._reading[group.ref] = task
        task.add_done_callback(lambda _: self._reading.pop(group.ref, None))

    async def _read(self, group: PodGroup) -> None:
        master = group.living.get(MASTER_RANK)
        if master is None or not is_gated(master):
            return
        try:
            with self._client.giving_way():  # launches are more urgent
                workload = await self._find(group)
                place = await self._places.of(queue_of(master), group.ref.name) if workload else None
                note = waiting_note(master, workload, place)
        except Forbidden:
            note = _NO_RIGHT
        except ApiError:
            return  # a later observation reads it again
        finally:
            group.gate_read_at = time.monotonic()
        self._groups.gate_was_read(group, note)

    async def _find(self, group: PodGroup) -> Manifest | None:
        try:
            found = await self._client.read(WORKLOADS, group.ref.name)
        except NotFound:
            return None
        return found if is_of(found, group.living.values()) else None
