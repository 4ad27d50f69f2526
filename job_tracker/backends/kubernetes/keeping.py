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
from collections.abc import Collection
from datetime import UTC, datetime

from job_tracker.backends.kubernetes.api_errors import Conflict, Forbidden, Invalid, NotFound
from job_tracker.backends.kubernetes.cache import PodCache
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.labels import (
    KEPT,
    Manifest,
    group_of,
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

    async def keep(self, pod: Manifest, until: datetime) -> bool:
        """Keep a pod that has ended by itself; False if it is gone, or cannot be kept.

        It belongs to its master no more, whose deletion it is to survive.
        """
        told = pod["metadata"]
        change = {
            "labels": {KEPT: "true"},
            "annotations": {KEPT_UNTIL: until.isoformat(timespec="seconds")},
            "ownerReferences": None,
        }
        try:
            await self._client.change("pods", told["name"], told["uid"], change)
        except (NotFound, Conflict):
            return False
        except (Forbidden, Invalid) as error:
            log.warning("%s is not kept for people to look at: %s", told["name"], error)
            return False
        self._cache.remove(pod)  # the watch will say so, too
        return True

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        """Remove the pods that were kept until `now` or before, and those of `forgotten` groups."""
        listing = await self._client.list("pods", selector(self._instance, kept=True))
        ours = ((group_of(pod), pod) for pod in listing.items)  # None: not ours, with our label on it
        over = [pod for ref, pod in ours if ref and (ref in forgotten or _until(pod) <= now)]
        # Nothing runs in them, so there is no grace to be waited for, nor a node to be heard.
        told = [pod["metadata"] for pod in over]
        await asyncio.gather(*(self._client.delete("pods", each["name"], each["uid"], 0) for each in told))


def _until(pod: Manifest) -> datetime:
    until = kept_until(pod)
    if until is None:
        log.warning("%s is removed: its annotation %s is no time", pod["metadata"]["name"], KEPT_UNTIL)
    return until or datetime.min.replace(tzinfo=UTC)
