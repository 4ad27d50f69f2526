"""A local view of the service's pods: a list from the API server, then a watch that continues from the list.

The view may lag behind the cluster, especially after a lost connection. The view never goes backwards: an
object is replaced only by an object of the same name with a later version. So the object that a write returns
can be added at once, and the watch may deliver it again without harm. All objects are listed again after each
failure and periodically. The list makes up for all missed changes. The work for one event does not depend on
the number of pods.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from job_tracker.backends.kubernetes.api_errors import ApiError, Gone
from job_tracker.backends.kubernetes.client import KubernetesClient, Resource
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import background, end, repeat

log = logging.getLogger(__name__)

_REMEMBERED_DEATHS = 10_000
_OF_SPEC = frozenset({"containers", "nodeName", "readinessGates", "schedulingGates", "subdomain"})
_OF_CONTAINER = frozenset({"name", "image", "env"})
_OF_STATUS = frozenset(
    {
        *("phase", "reason", "message", "conditions", "startTime"),
        *("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTiming:
    """The duration of a watch, the period of full lists, and the pauses after failures, in seconds.

    If a watch receives no message for `silence` seconds, not even a bookmark, its connection counts as dead.
    """

    watch_seconds: int = 240
    relist_seconds: float = 600.0
    silence: float = 90.0
    first_pause: float = 0.2
    longest_pause: float = 10.0


class PodCache:
    """A cache of the pods, or the objects of another `resource`, that match a label selector.

    The function `reduced` removes unused fields from objects before they are kept. `fields` is a field
    selector of Kubernetes. `on_change` is called with changed objects, each with a flag that is true if the
    object is gone.
    """

    def __init__(
        self,
        client: KubernetesClient,
        selector: str,
        on_change: Callable[[Sequence[tuple[Manifest, bool]]], None],
        timing: WatchTiming | None = None,
        resource: Resource = "pods",
        *,
        fields: str = "",
        reduced: Callable[[Manifest], Manifest] | None = None,
    ) -> None:
        self._client = client
        self._fields = fields
        self._reduced = reduced or slim
        self._resource = resource
        self._selector = selector
        self._on_change = on_change
        self._timing = timing or WatchTiming()
        self._pods: dict[tuple[str, str], Manifest] = {}
        self._dead: dict[str, None] = {}  # uids of deleted pods, so that a late answer does not restore a pod
        self._syncing = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._caught_up_at = 0.0
        self._heard_at: float | None = None
        self._following: asyncio.Task[None] | None = None
        self._version = ""  # the version of the last object or list that was seen
        self._relist_at = 0.0

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the last list, or since the last message of the watch; None before the first list.

        Thread-safe.
        """
        heard_at = self._heard_at
        return None if heard_at is None else time.monotonic() - heard_at

    async def sync(self) -> None:
        """On the first call, list all pods, and follow them from then on.

        Raises ApiError if the list fails.
        """
        if self._following is not None:
            return
        async with self._syncing:
            if self._following is None:
                await self._list()
                follow = repeat(
                    self._watch,
                    Backoff(self._timing.first_pause, self._timing.longest_pause),
                    failure=f"the watch of {self._resource} failed",
                    expected=ApiError,
                )
                self._following = background(follow, f"watch of {self._resource}", detached=True)

    async def refresh(self) -> str:
        """List all pods now, update the view, and return the version of the list."""
        listing = await self._client.list(self._resource, self._selector, self._fields)
        changes = [change for pod in listing.items for change in self._taken(pod)]
        listed = {_key(pod) for pod in listing.items}
        for name, pod in list(self._pods.items()):
            # A pod with a later version was created after the list.
            if name not in listed and _version(pod) <= int(listing.version):
                changes += self._removed(pod)
        self._publish(changes)
        return listing.version

    async def catch_up(self) -> None:
        """Update the view, so that it is not older than this call.

        Calls that come while a list is being read share the next list.
        """
        asked = time.monotonic()
        async with self._catching_up:
            if self._caught_up_at < asked:
                began = time.monotonic()
                await self.refresh()
                self._caught_up_at = began

    def put(self, pod: Manifest) -> None:
        """Add a pod from an event or an answer, unless a later version is known."""
        self._publish(self._taken(pod))

    def remove(self, pod: Manifest) -> None:
        """Remove a pod that no longer matches the selector, before the watch reports it."""
        self._publish(self._removed(pod))

    def _publish(self, changes: list[tuple[Manifest, bool]]) -> None:
        if changes:
            self._on_change(changes)

    def _taken(self, pod: Manifest) -> list[tuple[Manifest, bool]]:
        pod = self._reduced(pod)
        metadata, key = pod["metadata"], _key(pod)
        known = self._pods.get(key)
        if metadata["uid"] in self._dead or (known is not None and _version(known) >= _version(pod)):
            return []
        replaced = known is not None and known["metadata"]["uid"] != metadata["uid"]
        changes = self._removed(known) if known is not None and replaced else []
        self._pods[key] = pod
        return [*changes, (pod, False)]

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            await end(self._following)

    def _removed(self, pod: Manifest) -> list[tuple[Manifest, bool]]:
        metadata = pod["metadata"]
        if metadata["uid"] in self._dead:
            return []
        self._dead[metadata["uid"]] = None
        if len(self._dead) > _REMEMBERED_DEATHS:
            del self._dead[next(iter(self._dead))]
        key = _key(pod)
        known = self._pods.get(key)
        if known is not None and known["metadata"]["uid"] == metadata["uid"]:
            del self._pods[key]
        return [(pod, True)]

    async def _list(self) -> None:
        """List everything, and let the next watch start from the version of this list."""
        self._version = await self.refresh()
        self._heard_at = time.monotonic()
        self._relist_at = self._heard_at + self._timing.relist_seconds

    async def _watch(self) -> None:
        """Follow one watch to its end. If a list is due, or the last watch failed, list all pods first."""
        if time.monotonic() > self._relist_at:
            await self._list()
        relist_at, self._relist_at = self._relist_at, 0.0
        with suppress(Gone):  # the version is too old: list again at once
            await self._follow_changes()
            self._relist_at = relist_at

    async def _follow_changes(self) -> None:
        seconds = round(self._timing.watch_seconds * random.uniform(0.75, 1.25))  # noqa: S311
        events = self._client.watch(
            *(self._resource, self._selector, self._version),
            seconds=seconds,
            silence=self._timing.silence,
            fields=self._fields,
        )
        async with aclosing(events):
            async for kind, pod in events:
                self._heard_at = time.monotonic()
                self._version = pod["metadata"]["resourceVersion"]
                if kind == "DELETED":
                    self._publish(self._removed(self._reduced(pod)))
                elif kind != "BOOKMARK":
                    self.put(pod)


def slim(pod: Manifest) -> Manifest:
    """Return the pod with only the fields in use. A complete pod takes 40 kB, and there are many pods."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key in _OF_SPEC}
    if containers := spec.get("containers"):
        spec["containers"] = [
            {key: value for key, value in each.items() if key in _OF_CONTAINER} for each in containers
        ]
    status = {key: value for key, value in (pod.get("status") or {}).items() if key in _OF_STATUS}
    return {"metadata": metadata, "spec": spec, "status": status}


def _key(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _version(pod: Manifest) -> int:
    return int(pod["metadata"]["resourceVersion"])
