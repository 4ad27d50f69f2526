"""Ends groups: the intent, the logs, the deletion, and the wait until nothing is left."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from job_tracker.backends.base import Observation
from job_tracker.backends.kubernetes.api_errors import Conflict, Forbidden, NotFound
from job_tracker.backends.kubernetes.cache import PodCache
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.groups import (
    STOPPING,
    Groups,
    PodGroup,
    has_ended,
    has_started,
    has_stopped,
    is_running,
)
from job_tracker.backends.kubernetes.keeping import Keeper
from job_tracker.backends.kubernetes.labels import Manifest, group_of, group_selector, rank_of
from job_tracker.backends.kubernetes.logs import PodLogs
from job_tracker.common.tasks import SharedWork, within
from job_tracker.domain import naming
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)

_LOG_SECONDS = 10.0
_REST_SECONDS = 2.0
_FORCED_SECONDS = 5.0
# Early versions of kubelet look only every 10 s for pods whose containers have ended, to remove them.
_KUBELET_SECONDS = 0.5


class Stopper:
    """Ends groups of the service named `instance`.

    Pods that are still there `margin` seconds after their grace are taken to be on a node that is lost,
    and are removed without asking it.
    """

    def __init__(
        self,
        client: KubernetesClient,
        cache: PodCache,
        groups: Groups,
        logs: PodLogs,
        keeper: Keeper,
        *,
        instance: str,
        margin: float,
    ) -> None:
        self._client = client
        self._cache = cache
        self._groups = groups
        self._logs = logs
        self._keeper = keeper
        self._instance = instance
        self._margin = margin
        self._stops: SharedWork[GroupRef, Observation | None] = SharedWork()

    async def stop(
        self,
        ref: GroupRef,
        grace: timedelta,
        keep_until: datetime | None = None,
    ) -> Observation | None:
        """End the group, and say how its ranks ended; None if there is no such group.

        Pods that have ended by themselves stay until `keep_until`, if that is given. Stops of one group
        share the work, which goes on if one who waits for it gives up.
        """
        work = partial(self._give_way, ref, max(1, math.ceil(grace.total_seconds())), keep_until)
        return await self._stops.do(ref, work, f"stop {ref.name}")

    async def remove_lost(self, ref: GroupRef, pod: Manifest) -> None:
        """Remove a pod that has failed, so that its rank can be started anew; what it printed is kept."""
        group, rank = await self._find(ref), rank_of(pod)
        if group is not None and rank is not None and has_started(pod):
            await within(_LOG_SECONDS, [asyncio.create_task(self._logs.keep(group, rank))])
        await self._client.delete("pods", pod["metadata"]["name"], pod["metadata"]["uid"], 0)

    async def remove_service(self, ref: GroupRef) -> None:
        """Remove the group's Service, if there is one and it is ours."""
        name = naming.master_service_name(ref.name)
        try:
            service = await self._client.read("services", name)
        except NotFound:
            return
        if group_of(service) == ref:
            await self._client.delete("services", name, service["metadata"]["uid"])

    async def close(self) -> None:
        """Leave what is being stopped to the cluster."""
        await self._stops.close()

    async def _give_way(self, ref: GroupRef, grace: int, keep_until: datetime | None) -> Observation | None:
        with self._client.giving_way():  # a thousand may be cancelled at once, while others are launched
            return await self._stop(ref, grace, keep_until)

    async def _stop(self, ref: GroupRef, grace: int, keep_until: datetime | None) -> Observation | None:
        group = await self._find(ref)
        if group is None:
            await self.remove_service(ref)
            return None
        self._groups.observe(group)  # ranks that have ended by now keep how
        group.held = group.stopping = True
        try:
            await self._announce(group)
            async with self._keeping_logs(group):
                await self._delete(group, grace, keep_until)
                await self._groups.wait(group, _has_stopped, grace + self._margin)
            await self._remove_leftovers(group)
            if group.instances > 1:
                await self.remove_service(ref)
            seen = self._groups.observe(group)
        finally:
            group.held = False
        self._groups.drop(ref)
        return seen

    async def _find(self, ref: GroupRef) -> PodGroup | None:
        group = self._groups.get(ref)
        if group is None or not group.living:
            # The cache may be behind: somebody may have launched the group a moment ago.
            listing = await self._client.list("pods", group_selector(ref, self._instance))
            for pod in listing.items:
                self._cache.put(pod)
            group = self._groups.get(ref)
        return group

    async def _announce(self, group: PodGroup) -> None:
        """Write on the master that the end is ours, for a service that finds the group half gone.

        It is enough on the master, which is deleted last: while others are on their way out, it is there.
        """
        master = group.living.get(MASTER_RANK)
        if master is None or STOPPING in (master["metadata"].get("annotations") or {}):
            return
        told = master["metadata"]
        mark = {"annotations": {STOPPING: datetime.now(UTC).isoformat(timespec="seconds")}}
        try:
            self._cache.put(await self._client.change("pods", told["name"], told["uid"], mark))
        except (NotFound, Conflict):
            pass  # it is gone already
        except Forbidden as error:
            log.warning("a restart now would take the end of %s for a failure: %s", group.ref.name, error)

    @asynccontextmanager
    async def _keeping_logs(self, group: PodGroup) -> AsyncIterator[None]:
        """Keep what the ranks have printed, and within what they still print.

        A node that does not answer holds this up for no longer than _LOG_SECONDS. It is asked once more
        at the end, and not meanwhile: a thousand may be stopped at once.
        """
        started = [rank for rank, pod in group.living.items() if has_started(pod)]
        kept = {rank: asyncio.create_task(self._logs.keep(group, rank)) for rank in started}
        await within(_LOG_SECONDS, list(kept.values()))
        # Also those that another is ending: a pod that was evicted prints in its grace, as ours do.
        going_on = [rank for rank in started if is_running(group.living.get(rank, {}))]
        read = [rank for rank in going_on if _result_of(kept[rank])]
        rest = [asyncio.create_task(self._logs.keep(group, rank, follow=True)) for rank in read]
        try:
            await asyncio.sleep(0)  # their requests go out first
            yield
            unread = [rank for rank in going_on if rank not in read and rank in group.living]
            rest += [asyncio.create_task(self._logs.keep(group, rank, again=False)) for rank in unread]
            await within(_REST_SECONDS, rest)
        finally:
            await within(0, rest)

    async def _delete(self, group: PodGroup, grace: int, keep_until: datetime | None = None) -> None:
        """Ask for the end of every pod that is not kept; the master last, see _announce."""
        living = group.living
        master = living.pop(MASTER_RANK, None)
        deletions = [self._delete_pod(pod, grace, keep_until) for pod in living.values()]
        await asyncio.gather(*deletions)
        if master is not None:
            await self._delete_pod(master, grace, keep_until)

    async def _delete_pod(self, pod: Manifest, grace: int, keep_until: datetime | None) -> None:
        if keep_until is not None and has_ended(pod) and await self._keeper.keep(pod, keep_until):
            return
        await self._client.delete("pods", pod["metadata"]["name"], pod["metadata"]["uid"], grace)

    async def _remove_leftovers(self, group: PodGroup) -> None:
        """Remove the pods that are still there: kubelet takes its time, or the node is lost."""
        if await self._groups.wait(group, _is_gone, _KUBELET_SECONDS):
            return
        await self._cache.catch_up()  # in case the watch did not tell
        lost = [pod["metadata"]["name"] for pod in group.living.values() if not has_stopped(pod)]
        if lost:
            log.warning("removing pods whose node does not end them: %s", ", ".join(lost))
        await self._delete(group, 0)
        if not await self._groups.wait(group, _is_gone, _FORCED_SECONDS):
            await self._cache.catch_up()
        if group.living:
            names = ", ".join(pod["metadata"]["name"] for pod in group.living.values())
            raise BackendUnavailable(f"{names}: deleted, but held by finalizers or an admission controller")


def _is_gone(group: PodGroup) -> bool:
    return not group.living


def _has_stopped(group: PodGroup) -> bool:
    """Whether no process of the group is left, as far as their nodes have told."""
    return all(has_stopped(pod) for pod in group.living.values())


def _result_of(task: asyncio.Task[bool]) -> bool:
    """Whether a log was kept; not if that was given up, or has failed."""
    return not task.cancelled() and task.exception() is None and task.result()
