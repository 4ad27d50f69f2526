"""Stops groups: marks each as being stopped, saves its logs, deletes its pods, and waits for their end."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from job_tracker.backends.base import Observation
from job_tracker.backends.kubernetes.api_errors import (
    Conflict,
    Forbidden,
    NotFound,
    Unreachable,
    WebhookAway,
)
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
from job_tracker.backends.kubernetes.kueue import MANAGED, is_held, is_managed, of_stop
from job_tracker.backends.kubernetes.labels import Manifest, group_of, group_selector, rank_of
from job_tracker.backends.kubernetes.logs import PodLogs
from job_tracker.backends.kubernetes.pod_groups import PodGroups
from job_tracker.backends.kubernetes.status import deletion_deadline, node_is_silent
from job_tracker.backends.kubernetes.workloads import Workloads
from job_tracker.backends.shared.engine_logs import is_saved
from job_tracker.common.tasks import SharedWork, within
from job_tracker.domain import naming
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import MASTER_RANK, GroupRef

log = logging.getLogger(__name__)

_LOG_SECONDS = 10.0
# A group that has ended occupies no capacity, so a slow API server gets more time to send the logs.
_ENDED_LOG_SECONDS = 40.0
_REST_SECONDS = 2.0
_FORCED_SECONDS = 5.0
# How long a stop waits for kubelets to remove ended pods. Old kubelets remove pods only every 10 s: a stop
# does not wait so long, but removes these pods itself.
_KUBELET_SECONDS = 0.5
# The shortest grace period, in seconds, with which the API server waits for the node. With 0, it would not
# wait.
_STALLED_GRACE = 1


class Stopper:
    """Stops groups of the service named `instance`.

    A pod that still exists `margin` seconds after its grace period counts as lost with its node, and is
    removed without waiting for the node.
    """

    def __init__(
        self,
        client: KubernetesClient,
        cache: PodCache,
        groups: Groups,
        logs: PodLogs,
        keeper: Keeper,
        pod_groups: PodGroups,
        workloads: Workloads,
        *,
        instance: str,
        margin: float,
    ) -> None:
        self._client = client
        self._cache = cache
        self._groups = groups
        self._logs = logs
        self._keeper = keeper
        self._pod_groups = pod_groups
        self._workloads = workloads
        self._instance = instance
        self._margin = margin
        self._stops: SharedWork[GroupRef, Observation | None] = SharedWork()

    async def stop(
        self,
        ref: GroupRef,
        grace: timedelta,
        keep_until: datetime | None = None,
    ) -> Observation | None:
        """Stop the group and return how its ranks ended; None if the group does not exist.

        Pods that ended by themselves are kept until `keep_until`, if given. Concurrent stops of a group
        share the work, which continues even if the callers are cancelled.
        """
        work = partial(self._stop_giving_way, ref, max(1, math.ceil(grace.total_seconds())), keep_until)
        return await self._stops.do(ref, work, f"stop {ref.name}")

    async def remove_lost(self, ref: GroupRef, pod: Manifest) -> None:
        """Save the log of a rank that must be restarted, and begin to remove its pod. May be repeated.

        If the pod still runs, it has stalled. It is removed only after its node has killed its processes, so
        that the rank does not run twice at the same time. If the node does not do this in time, a later call
        removes the pod without waiting for the node.
        """
        metadata, grace = pod["metadata"], 0
        if (deadline := deletion_deadline(pod)) is not None:
            if datetime.now(UTC) < deadline + timedelta(seconds=self._margin):
                return
            log.warning("removing %s, which its node does not stop", metadata["name"])
        else:
            log.info("removing %s; restarting its rank", metadata["name"])
            group, rank = await self._find(ref), rank_of(pod)
            if group is not None and rank is not None and has_started(pod):
                keeping = asyncio.create_task(self._logs.keep(group, rank))
                await within(_LOG_SECONDS, [keeping])
                if not is_saved(keeping):
                    await self._ask_for(pod)
            if is_running(pod) and not node_is_silent(pod):
                grace = _STALLED_GRACE
        await self._client.delete("pods", metadata["name"], metadata["uid"], grace)

    async def remove_service(self, ref: GroupRef) -> None:
        """Remove the group's Service, if it exists and belongs to the group."""
        name = naming.master_service_name(ref.name)
        try:
            service = await self._client.read("services", name)
        except NotFound:
            return
        if group_of(service) == ref:
            await self._client.delete("services", name, service["metadata"]["uid"])

    async def close(self) -> None:
        """Stop waiting. The cluster completes the deletions."""
        await self._stops.close()

    async def _stop_giving_way(
        self, ref: GroupRef, grace: int, keep_until: datetime | None
    ) -> Observation | None:
        with self._client.giving_way():  # launches go first: a thousand jobs may be stopped at once
            return await self._stop(ref, grace, keep_until)

    async def _stop(self, ref: GroupRef, grace: int, keep_until: datetime | None) -> Observation | None:
        group = await self._find(ref)
        if group is None:
            await self.remove_service(ref)
            await self._pod_groups.remove(ref)
            return None
        self._groups.observe(group)  # records the results of ranks that have ended
        group.held = group.stopping = True
        try:
            is_marked = await self._mark_stopping(group)
            async with self._keeping_logs(group):
                await self._delete(group, grace, keep_until)
                await self._groups.wait(group, _has_stopped, grace + self._margin)
            await self._workloads.release(group, is_marked=is_marked)
            await self._remove_leftovers(group)
            if group.instances > 1:
                await self.remove_service(ref)
                await self._pod_groups.remove(ref)
            seen = self._groups.observe(group)
        finally:
            group.held = False
        self._groups.drop(ref)
        return seen

    async def _find(self, ref: GroupRef) -> PodGroup | None:
        group = self._groups.get(ref)
        if group is None or not group.living:
            # The cache may lag behind a launch by another replica.
            listing = await self._client.list("pods", group_selector(ref, self._instance))
            for pod in listing.items:
                self._cache.put(pod)
            group = self._groups.get(ref)
        return group

    async def _mark_stopping(self, group: PodGroup) -> bool:
        """Mark the group as being stopped, by an annotation on its master pod.

        From the mark, a service that later finds only some of the group's pods knows that the others were
        removed by a stop. The master is deleted last, so it usually outlives the others. If the master is
        gone, another pod gets the mark. Returns False if no pod could be marked and Kueue needs the mark.
        """
        _, pod = min(group.living.items(), default=(MASTER_RANK, None))
        annotations = (pod["metadata"].get("annotations") or {}) if pod is not None else {}
        # An earlier version of the service may have written STOPPING without the annotations of `of_stop`.
        if pod is None or (STOPPING in annotations and of_stop(pod).items() <= annotations.items()):
            return True
        metadata, ref = pod["metadata"], group.ref.name
        now = datetime.now(UTC).isoformat(timespec="seconds")
        mark = {"annotations": {STOPPING: now, **of_stop(pod)}}
        try:
            self._cache.put(await self._client.change("pods", metadata["name"], metadata["uid"], mark))
        except (NotFound, Conflict):
            return not is_managed(pod)  # the pod is gone, but other pods may be left
        except (Forbidden, Unreachable) as error:  # deletion needs neither this right nor a webhook
            if not isinstance(error, Forbidden | WebhookAway) and not is_managed(pod):
                raise  # no answer, perhaps because a webhook hangs: the caller stops the group again later
            log.warning(
                "%s: not marked as stopping; if the service restarts now, the stop will count as a "
                "failure: %s",
                ref,
                error,
            )
            return not is_managed(pod)
        return True

    @asynccontextmanager
    async def _keeping_logs(self, group: PodGroup) -> AsyncIterator[None]:
        """Save the output that the ranks have printed so far, and the output that they print during the
        block.

        - At the beginning, a silent node delays the stop by at most _LOG_SECONDS, or by _ENDED_LOG_SECONDS
          if all ranks have ended.
        - During the block, nodes that did not answer are not asked again, because a thousand groups may be
          stopped at once.
        - At the end, such a node is asked once more, for at most _REST_SECONDS.
        - A rank may still start during the stop. The time limit for its log is at least _REST_SECONDS if it
          starts before the deletions, and _LOG_SECONDS if it starts later.
        """
        pods: dict[int, Manifest] = {}
        kept: dict[int, asyncio.Task[bool]] = {}
        began, seconds = time.monotonic(), 0.0
        while new := _started(group, besides=kept):
            pods |= new
            kept |= {rank: asyncio.create_task(self._logs.keep(group, rank)) for rank in new}
            seconds = _ENDED_LOG_SECONDS if all(map(has_ended, pods.values())) else _LOG_SECONDS
            await within(max(_REST_SECONDS, began + seconds - time.monotonic()), list(kept.values()))
        if lost := [rank for rank, pod in pods.items() if has_ended(pod) and kept[rank].cancelled()]:
            log.warning(
                "the logs of ranks %s of group %s are lost: the cluster did not send them within %.0f s",
                *(", ".join(map(str, lost)), group.ref.name, seconds),
            )
        unsaved = [pods[rank] for rank, task in kept.items() if not is_saved(task)]
        if unsaved:
            await self._ask_for(unsaved[0])
        # `going_on` includes evicted pods, which may print during their grace periods.
        living = group.living
        going_on = [rank for rank in pods if is_running(living.get(rank, {}))]
        read = [rank for rank in going_on if is_saved(kept[rank])]
        rest = [asyncio.create_task(self._logs.keep(group, rank, follow=True)) for rank in read]
        try:
            await asyncio.sleep(0)  # send the log requests before the deletions
            yield
            late = _started(group, besides=kept)
            unread = [rank for rank in going_on if rank not in read and rank in group.living]
            rest += [
                asyncio.create_task(self._logs.keep(group, rank, again=False)) for rank in (*unread, *late)
            ]
            await within(_LOG_SECONDS if late else _REST_SECONDS, rest)
        finally:
            await within(0, rest)

    async def _ask_for(self, pod: Manifest) -> None:
        """Raise Unreachable if the API server does not answer, so that the caller repeats its work later.

        Call this before the deletion of a pod whose log could not be saved. Otherwise, a server that does not
        answer might still execute the deletion later, and a log that was not read would be lost.
        """
        with suppress(NotFound):
            await self._client.read("pods", pod["metadata"]["name"])

    async def _delete(self, group: PodGroup, grace: int, keep_until: datetime | None = None) -> None:
        """Delete every pod that is not kept, the master last; see _mark_stopping."""
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
        """Remove pods that remain after the grace period, because the kubelet is slow or the node is lost.

        Raises BackendUnavailable if pods still exist after that.
        """
        if await self._groups.wait(group, _is_gone, _KUBELET_SECONDS):
            return
        await self._cache.catch_up()  # in case the watch missed an event
        lost = [pod for pod in group.living.values() if not (has_stopped(pod) or is_held(pod))]
        if lost:
            names = ", ".join(pod["metadata"]["name"] for pod in lost)
            log.warning("removing pods that their node does not stop: %s", names)
        await self._delete(group, 0)
        if any(map(is_managed, lost)):  # no node will tell Kueue that they have ended
            await self._workloads.release(group, has_lost=True)
        if not await self._groups.wait(group, _is_gone, _FORCED_SECONDS):
            await self._cache.catch_up()
        if group.living:
            left = group.living.values()
            names = ", ".join(pod["metadata"]["name"] for pod in left)
            by_kueue = any(MANAGED in (pod["metadata"].get("finalizers") or ()) for pod in left)
            why = (
                "Kueue has not removed its finalizers; check that it runs"
                if by_kueue
                else "finalizers or an admission controller block their removal"
            )
            raise BackendUnavailable(f"pods {names} are deleted but still exist: {why}")


def _started(group: PodGroup, *, besides: Container[int]) -> dict[int, Manifest]:
    """Return the pods that exist and have started, by rank, without those of the ranks in `besides`."""
    return {rank: pod for rank, pod in group.living.items() if rank not in besides and has_started(pod)}


def _is_gone(group: PodGroup) -> bool:
    return not group.living


def _has_stopped(group: PodGroup) -> bool:
    """Return whether no process of the group is left, according to its nodes."""
    return all(has_stopped(pod) or is_held(pod) for pod in group.living.values())
