"""Keeps pods of stopped groups for a while, for inspection.

Kept pods have a label, so that no replica selects them as pods of live groups. An annotation of each kept
pod has the time until which the pod is kept, so any replica can remove the pod afterwards.

Only pods that ended by themselves can be kept, because a running pod is ended by deleting it. A deadline
(activeDeadlineSeconds) would end a running pod without deleting it. But old kubelets (seen with 1.20)
report such a pod as Failed while its processes run, and never report the end of the processes
(kubernetes/kubernetes issue 88613).
"""

import asyncio
import logging
from collections.abc import Collection
from datetime import UTC, datetime

from job_tracker.backends.kubernetes.api_errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
)
from job_tracker.backends.kubernetes.cache import PodCache
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.kueue import is_managed, of_stop
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
    """Keeps pods of the service named `instance`, and removes them after a time."""

    def __init__(self, client: KubernetesClient, cache: PodCache, *, instance: str) -> None:
        self._client = client
        self._cache = cache
        self._instance = instance

    async def keep(self, pod: Manifest, until: datetime) -> bool:
        """Keep a pod that ended by itself; return False if it is gone or cannot be kept.

        A kept pod has no owner, so that it survives the deletion of its master. Raises Unreachable if the API
        server does not answer. If Kueue manages the pod, returns False instead, because perhaps only Kueue's
        webhook does not answer.
        """
        metadata = pod["metadata"]
        change = {
            "labels": {KEPT: "true"},
            "annotations": {KEPT_UNTIL: until.isoformat(timespec="seconds"), **of_stop(pod)},
            "ownerReferences": None,
        }
        try:
            await self._client.change("pods", metadata["name"], metadata["uid"], change)
        except (NotFound, Conflict):
            return False
        except (Forbidden, Invalid, Unreachable) as error:  # perhaps a webhook failed; the stop must go on
            if type(error) is Unreachable and not is_managed(pod):
                raise
            log.warning("pod %s cannot be kept for inspection; deleting it: %s", metadata["name"], error)
            return False
        self._cache.remove(pod)  # do not wait until the watch reports the change
        return True

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        """Remove the kept pods whose time is over at `now`, and all kept pods of `forgotten` groups."""
        listing = await self._client.list("pods", selector(self._instance, kept=True))
        ours = ((group_of(pod), pod) for pod in listing.items)  # a foreign pod with our label has no group
        over = [pod for ref, pod in ours if ref and (ref in forgotten or _until(pod) <= now)]
        # These pods run no process, so no grace period and no answer of the node is needed.
        metadata = [pod["metadata"] for pod in over]
        deletions = (self._client.delete("pods", each["name"], each["uid"], 0) for each in metadata)
        await asyncio.gather(*deletions)


def _until(pod: Manifest) -> datetime:
    until = kept_until(pod)
    if until is None:
        log.warning("removing kept pod %s: annotation %s is not a time", pod["metadata"]["name"], KEPT_UNTIL)
    return until or datetime.min.replace(tzinfo=UTC)
