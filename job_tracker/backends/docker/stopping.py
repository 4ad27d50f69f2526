"""Stops groups: writes the ending (endings.py), sends signals, saves the logs, and removes the containers."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from job_tracker.backends.base import Observation
from job_tracker.backends.docker.cache import ContainerCache
from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.endings import Ending, Endings
from job_tracker.backends.docker.engine_errors import Conflict, NotFound
from job_tracker.backends.docker.groups import ContainerGroup, Groups
from job_tracker.backends.docker.logs import ContainerLogs
from job_tracker.backends.docker.names import of_group, ours
from job_tracker.backends.shared.engine_logs import is_saved
from job_tracker.backends.shared.gathering import gathered
from job_tracker.backends.shared.labels import ALGORITHM, group_named
from job_tracker.backends.shared.retries import NotYet, repeated
from job_tracker.common.tasks import SharedWork, within
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import GroupRef

log = logging.getLogger(__name__)

_LOG_SECONDS = 10.0
_KILLED_SECONDS = 10.0
_REMOVED_SECONDS = 5.0
_LOOK_SECONDS = 0.1


class Stopper:
    """Stops groups of the service named `instance`."""

    def __init__(
        self,
        client: DockerClient,
        cache: ContainerCache,
        groups: Groups,
        endings: Endings,
        logs: ContainerLogs,
        *,
        instance: str,
    ) -> None:
        self._client = client
        self._cache = cache
        self._groups = groups
        self._endings = endings
        self._logs = logs
        self._instance = instance
        self._stops: SharedWork[GroupRef, Observation | None] = SharedWork()

    async def stop(
        self,
        ref: GroupRef,
        grace: timedelta,
        keep_until: datetime | None = None,
        *,
        keep_logs: bool = True,
    ) -> Observation | None:
        """End the group, and return how its ranks ended; None if it does not exist or was stopped before.

        Containers that have ended by themselves stay until `keep_until`, if it is given. With `keep_logs`,
        the logs go to the spool. Concurrent stops of one group share the work, which continues even if the
        callers are cancelled.
        """
        work = partial(self._stop, ref, grace.total_seconds(), keep_until, keep_logs)
        return await self._stops.do(ref, work, f"stop {ref.name}")

    async def sweep(self, now: datetime, forgotten: Collection[GroupRef] = ()) -> None:
        """Remove kept containers whose time is over, and networks and endings of interrupted stops.

        Kept containers of `forgotten` groups are removed at once. Networks and endings are listed before
        containers. Otherwise, the network of a group that is being launched would look like a network that an
        interrupted stop has left.
        """
        networks = await self._client.networks(ours(self._instance))
        endings = await self._endings.list()
        await self._cache.refresh()
        for ending in endings:
            group = self._groups.get(ending.group)
            if group is None:
                await self._endings.erase_all([ending])
                continue
            is_over = ending.keep_until is None or ending.keep_until <= now or ending.group in forgotten
            if group.is_kept and is_over:
                await self.clear(ending.group)
        for network in networks:
            labels = network.get("Labels") or {}
            ref = group_named(labels, labels)
            if ref is not None and self._groups.get(ref) is None:
                log.warning("removing the network of group %s, which has no containers", ref.name)
                await self._remove_network(network["Id"])

    async def clear(self, ref: GroupRef) -> None:
        """Remove all objects of a stopped group, even kept containers whose time is not over."""
        group = self._groups.get(ref)
        if group is not None:
            await gathered(self._remove(each) for each in group.living.values())
        await self._remove_networks(ref)
        await self._endings.erase(ref)
        self._groups.drop(ref)

    async def remove_lost(self, container: Container) -> None:
        """Save the log of a rank that must be restarted, and remove its container.

        A container that still runs has stalled, and is killed first.
        """
        if container.has_started and not container.has_ended:
            with suppress(NotFound, Conflict):  # it has ended by itself
                await self._client.kill(container.id, "SIGKILL")
        group = self._groups.get(container.group) if container.group else None
        if group is not None and container.rank is not None and container.has_started:
            await self._keep_logs(group, [container.rank])
        await self._remove(container)

    async def close(self) -> None:
        """Interrupt the stops that are in progress. The groups stay as they are."""
        await self._stops.close()

    async def _stop(
        self, ref: GroupRef, grace: float, keep_until: datetime | None, keep_logs: bool
    ) -> Observation | None:
        await self._cache.refresh()  # another replica may just have launched the group
        group = self._groups.get(ref)
        if group is None or group.is_kept:
            await self._remove_networks(ref)
            return None
        group.held = True
        try:
            ending = await self._announce(group, keep_until)
            await self._end_containers(group, grace)
            if keep_logs:
                await self._keep_logs(group, [n for n, each in group.living.items() if each.has_started])
            seen = self._groups.observe(group)
            stay = ending.ended_before if ending.keep_until is not None else frozenset()
            await gathered(self._remove(each) for rank, each in group.living.items() if rank not in stay)
            await self._remove_networks(ref)
        finally:
            group.held = False
        if not group.living:
            await self._endings.erase(ref)
            self._groups.drop(ref)
        return seen

    async def _announce(self, group: ContainerGroup, keep_until: datetime | None) -> Ending:
        """Write and return the ending of the group, so that no replica diagnoses the stop as a failure."""
        self._groups.observe(group)  # records the ends of ranks that have ended by now
        ended = frozenset(rank for rank, each in group.living.items() if each.has_ended and each.has_started)
        algorithm = next((each.labels[ALGORITHM] for each in group.containers.values()), None)
        ending = group.ending or Ending(group.ref, ended, keep_until)
        if group.ending is None and algorithm is not None and not _is_gone(group):
            ending = await self._endings.write(ending, algorithm)
        group.ending = ending
        return ending

    async def _end_containers(self, group: ContainerGroup, grace: float) -> None:
        """Send SIGTERM to every running container.

        After `grace` seconds, send SIGKILL to those that have not ended. Raises BackendUnavailable if
        containers still run some seconds later.
        """
        for signal, seconds in (("SIGTERM", grace), ("SIGKILL", _KILLED_SECONDS)):
            await gathered(self._signal(each, signal) for each in group.running.values())
            if await self._groups.wait(group, _has_ended, seconds):
                return
            await self._cache.refresh()  # in case events were missed
        if not _has_ended(group):
            names = ", ".join(each.name for each in group.running.values())
            raise BackendUnavailable(f"the Docker engine does not end {names}")

    async def _signal(self, container: Container, signal: str) -> None:
        try:
            await self._client.kill(container.id, signal)
        except (Conflict, NotFound):
            await self._cache.look(container.id)  # the container has just ended by itself

    async def _keep_logs(self, group: ContainerGroup, ranks: Iterable[int]) -> None:
        """Copy the logs of the ranks to the spool. Output that a slow engine has not sent in time is lost.

        Raises BackendUnavailable if the engine does not answer, so that the caller removes no container.
        Otherwise, the engine might execute the removal later, and a log that was not read would be lost.
        """
        kept = [asyncio.create_task(self._logs.keep(group, rank)) for rank in ranks]
        await within(_LOG_SECONDS, kept)
        if not all(map(is_saved, kept)):
            await self._cache.refresh()

    async def _remove(self, container: Container) -> None:
        """Remove the container, and wait until it is gone. Another client may be removing it."""

        async def remove() -> None:
            try:
                await self._client.remove(container.id)
            except NotFound:
                pass
            except Conflict as error:
                raise NotYet(f"{container.name} is not removed: {error.message}") from error

        await repeated(remove, _REMOVED_SECONDS, _LOOK_SECONDS)
        self._cache.removed(container)

    async def _remove_networks(self, ref: GroupRef) -> None:
        for network in await self._client.networks(of_group(ref, self._instance)):
            await self._remove_network(network["Id"])

    async def _remove_network(self, network: str) -> None:
        with suppress(NotFound):
            await self._client.remove_network(network)


def _is_gone(group: ContainerGroup) -> bool:
    return not group.living


def _has_ended(group: ContainerGroup) -> bool:
    return not group.running
