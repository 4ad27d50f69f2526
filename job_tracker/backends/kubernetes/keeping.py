"""Pods of stopped groups that stay for a while, for people to look at.

A label takes them out of the selection that is listed and watched for live groups, so that to the rest of
the service, and to every other one, they are gone. All there is to know is on the pod: whoever comes along
after its time removes it.

Only pods that have ended by themselves stay, as one that runs is ended by its deletion alone. A deadline
would end it too, but early kubelets (seen with 1.20) call such a pod Failed while its processes run on, and
never say when they have ended (kubernetes/kubernetes issue 88613).
"""

import asyncio
import logging
from datetime import UTC, datetime

from job_tracker.backends.kubernetes.api_errors import Conflict, Forbidden, Invalid, NotFound
from job_tracker.backends.kubernetes.cache import PodCache
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.labels import (
    KEPT,
    Manifest,
    group_of,
    group_selector,
    kept_until,
    selector,
)
from job_tracker.backends.shared.labels import KEPT_UNTIL
from job_tracker.domain.group import GroupRef

log = logging.getLogger(__name__)


class Keeper:
    """Keeps pods of the service named `instance`, and removes them when their time is over."""

    def __init__(self, client: KubernetesClient, cache: PodCache, *, instance: str) -> None:
        self._client = client
        self._cache = cache
        self._instance = instance
        # The groups that pods are kept of, so that nobody has to ask for each of a thousand old jobs.
        self._groups: set[GroupRef] = set()
        self._has_swept = False

    async def keep(self, ref: GroupRef, pod: Manifest, until: datetime) -> bool:
        """Keep a pod of the group, which has ended by itself; False if it is gone, or cannot be kept.

        It belongs to its master no more, whose deletion it is to survive.
        """
        told = pod["metadata"]
        change = {
            "labels": {KEPT: "true"},
            "annotations": {KEPT_UNTIL: until.isoformat(timespec="seconds")},
            "ownerReferences": None,
        }
        self._groups.add(ref)
        try:
            await self._client.change("pods", told["name"], told["uid"], change)
        except (NotFound, Conflict):
            return False
        except (Forbidden, Invalid) as error:
            log.warning("%s is not kept for people to look at: %s", told["name"], error)
            return False
        self._cache.remove(pod)  # the watch will say so, too
        return True

    async def sweep(self, now: datetime) -> None:
        """Remove the pods that were kept until `now` or before."""
        before = set(self._groups)
        listing = await self._client.list("pods", selector(self._instance, kept=True))
        over, still = [], set()
        for pod in listing.items:
            ref = group_of(pod)
            if ref is None:
                continue  # somebody else's, with our label on it
            if _until(pod) <= now:
                over.append(pod)
            else:
                still.add(ref)
        await self._remove(over)
        self._groups = still | (self._groups - before)  # and those that were kept meanwhile
        self._has_swept = True

    async def discard(self, ref: GroupRef) -> None:
        """Remove what is kept of the group, whatever its time."""
        if self._has_swept and ref not in self._groups:
            return
        listing = await self._client.list("pods", group_selector(ref, self._instance, kept=True))
        await self._remove([pod for pod in listing.items if group_of(pod) == ref])
        self._groups.discard(ref)

    async def _remove(self, pods: list[Manifest]) -> None:
        # Nothing runs in them, so there is no grace to be waited for, nor a node to be heard.
        told = [pod["metadata"] for pod in pods]
        await asyncio.gather(*(self._client.delete("pods", each["name"], each["uid"], 0) for each in told))


def _until(pod: Manifest) -> datetime:
    until = kept_until(pod)
    if until is None:
        log.warning("%s is removed: its annotation %s is no time", pod["metadata"]["name"], KEPT_UNTIL)
    return until or datetime.min.replace(tzinfo=UTC)
