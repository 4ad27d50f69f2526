"""A cache of the service's containers, filled from a list of them and then from the events of the engine.

The cache may lag behind the engine, and may lag longer after a lost connection. The state of a container
never goes back to an earlier one: see ContainerGroup.take. The cache lists all containers at each connection
and once a minute, which makes up for missed events. Lists have no exit codes, so each listed container that
has ended is inspected, but only once. An event about a container that is not known to have ended causes an
inspection, too.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.containers import Container, inspected, listed
from job_tracker.backends.docker.endings import Ending, Endings
from job_tracker.backends.docker.engine_errors import EngineError, NotFound, Unreachable
from job_tracker.backends.docker.groups import Groups
from job_tracker.backends.docker.names import are_ours, group_of_ending, ours
from job_tracker.backends.shared.log_ends import READ_BYTES, READ_LINES, evidence_of
from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import background, end, repeat
from job_tracker.logs.records import TIME

log = logging.getLogger(__name__)

_TAIL_SILENCE = 5.0
_OVERLAP_SECONDS = 5
_WATCH_SECONDS = 60.0  # seconds until all containers are listed again
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0  # after failures


class ContainerCache:
    """Keeps `groups` up to date with the containers of the service named `instance`."""

    def __init__(self, client: DockerClient, endings: Endings, groups: Groups, *, instance: str) -> None:
        self._client = client
        self._endings = endings
        self._groups = groups
        self._instance = instance
        self._containers: dict[str, Container] = {}
        # The ids of containers that were removed, and of those that were added, since the current list was
        # requested.
        self._removed: set[str] = set()
        self._added: set[str] = set()
        self._listed_at = 0.0
        self._syncing = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """List all containers on the first call, and follow their events from then on. Raises EngineError."""
        if self._following is not None:
            return
        async with self._syncing:
            if self._following is None:
                await self.refresh()
                follow = repeat(
                    self._watch,
                    Backoff(_FIRST_PAUSE, _LONGEST_PAUSE),
                    failure="the watch of containers failed",
                    expected=EngineError,
                )
                self._following = background(follow, "container watch", detached=True)

    async def refresh(self) -> None:
        """List all endings and containers now, and update the groups."""
        async with self._listing:
            self._removed.clear()
            self._added.clear()
            self._listed_at = time.time()
            self._groups.end(await self._endings.list())
            entries = [listed(entry) for entry in await self._client.containers(ours(self._instance))]
            there = {entry.id for entry in entries}
            for entry in entries:
                if entry.id not in self._removed:
                    await self._take(entry)
            for known in list(self._containers.values()):
                if known.id not in there | self._added:
                    self._remove(known.id)

    async def look(self, container: str) -> Container | None:
        """Inspect the container with this id or name, and update its group.

        Return the container; None if it is gone.
        """
        try:
            found = await self._inspected(container)
        except NotFound:
            self._remove(container)
            return None
        if found.id not in self._removed and are_ours(found.labels, self._instance):
            self._put(found)
        return found

    def removed(self, container: Container) -> None:
        """Record that a container is gone, before the engine's event says so."""
        self._remove(container.id)

    async def close(self) -> None:
        """Stop following the events."""
        if self._following is not None:
            await end(self._following)

    async def _take(self, entry: Container) -> None:
        known = self._containers.get(entry.id)
        if not entry.has_ended:
            self._put(entry)
        elif known is None or not known.has_ended:
            with suppress(NotFound):
                self._put(await self._inspected(entry.id))

    async def _inspected(self, container: str) -> Container:
        answer = await self._client.inspect(container)
        found = inspected(answer)
        if not found.exit_code or not are_ours(found.labels, self._instance):
            return found
        known = self._containers.get(found.id)
        if known is not None and known.has_ended:
            return known
        return inspected(answer, await self._log_tail(found.id))

    async def _log_tail(self, container: str) -> str:
        """Return the end of the container's log as evidence; "" if it cannot be read."""
        end = b""
        with suppress(EngineError):
            pieces = self._client.logs(
                container, follow=False, since=None, tail_lines=READ_LINES, silence=_TAIL_SILENCE
            )
            async with aclosing(pieces):
                async for piece in pieces:
                    end = (end + piece[TIME + 1 :])[-READ_BYTES:]
        return evidence_of(end.decode(errors="replace"))

    def _put(self, container: Container) -> None:
        known = self._containers.get(container.id)
        if known is not None and known.progress > container.progress:
            return
        self._containers[container.id] = container
        self._added.add(container.id)
        self._groups.put(container)

    def _remove(self, container: str) -> None:
        known = self._containers.pop(container, None)
        if known is not None:
            self._removed.add(known.id)
            self._groups.remove(known)

    async def _watch(self) -> None:
        """List all containers, then follow their events for a while.

        The events begin some seconds before the list, so that none is missed. It is harmless if an event
        comes twice.
        """
        since = int(time.time()) - _OVERLAP_SECONDS
        await self.refresh()
        try:
            async with (
                asyncio.timeout(_WATCH_SECONDS),
                aclosing(self._client.events(since=since)) as events,
            ):
                async for event in events:
                    await self._take_event(event)
        except TimeoutError:
            return
        raise Unreachable("it ended the stream of events")

    async def _take_event(self, event: Mapping[str, Any]) -> None:
        actor = event["Actor"]
        if event["Type"] == "volume":
            name = group_of_ending(actor["ID"])
            if name is not None and event["Action"] == "create":
                await self._take_ending(name, event["timeNano"] / 1e9)
        elif not are_ours(actor["Attributes"], self._instance):
            return
        elif event["Action"] == "destroy":
            self._remove(actor["ID"])
        else:
            known = self._containers.get(actor["ID"])
            if known is None or not known.has_ended:
                await self.look(actor["ID"])

    async def _take_ending(self, name: str, at: float) -> None:
        group = next((group for group in self._groups if group.ref.name == name), None)
        if group is None or group.ending is not None:
            return
        if at < self._listed_at or not any(each.created_at <= at for each in group.containers.values()):
            return  # the last list has this ending, or the ending belongs to an earlier group of this name
        endings = await self._endings.list()
        # The event proves the ending, even if the ending was removed with the group in the meantime.
        is_there = any(each.group == group.ref for each in endings)
        self._groups.end(endings if is_there else [*endings, Ending(group.ref)])
