"""Endings: markers on the engine for groups that the service is stopping.

An ending is written before the first signal. Without the ending, another replica, or this replica after a
restart, would diagnose the stop as a failure. Labels of containers cannot be changed, so an ending is an
empty volume, named after the group. The labels of the volume say which ranks had ended before the stop, and
how long the containers of these ranks are kept. The ending is removed last, so an ending without containers
belongs to an interrupted stop.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.engine_errors import NotFound
from job_tracker.backends.docker.names import are_ours, ending_name, group_of_ending, ours
from job_tracker.backends.shared.labels import (
    ALGORITHM,
    ATTEMPT,
    INSTANCE,
    JOB_ID,
    KEPT_UNTIL,
    MANAGED_BY,
    MANAGER,
    group_named,
    number,
)
from job_tracker.domain.group import GroupRef

log = logging.getLogger(__name__)

_ENDED = "training-service/ended-before"


@dataclass(frozen=True, slots=True)
class Ending:
    """The stop of a group, and the ranks that had ended by themselves before it.

    The containers of these ranks are kept until `keep_until`; if that is None, they are not kept.
    """

    group: GroupRef
    ended_before: frozenset[int] = frozenset()
    keep_until: datetime | None = None


class Endings:
    """The endings of the groups of the service named `instance`."""

    def __init__(self, client: DockerClient, *, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def write(self, ending: Ending, algorithm: str) -> Ending:
        """Write the ending and return it.

        An existing ending is not changed, and is returned instead. If a foreign volume has the name of the
        ending's volume, the ending is not written, and a warning is logged. `algorithm` is the job's
        algorithm, which is a part of the group's name.
        """
        labels = {
            MANAGED_BY: MANAGER,
            INSTANCE: self._instance,
            JOB_ID: str(ending.group.job_id),
            ATTEMPT: str(ending.group.attempt),
            ALGORITHM: algorithm,
            _ENDED: ",".join(str(rank) for rank in sorted(ending.ended_before)),
        }
        if ending.keep_until is not None:
            labels[KEPT_UNTIL] = ending.keep_until.isoformat(timespec="seconds")
        volume = await self._client.create_volume(ending_name(ending.group.name), labels)
        written = _read(volume)
        if written is None or not are_ours(volume.get("Labels") or {}, self._instance):
            log.warning(
                "if the service restarts now, the stop of %s will count as a failure: %s",
                ending.group.name,
                _TAKEN,
            )
            return ending
        return written

    async def list(self) -> list[Ending]:
        """List all endings."""
        volumes = await self._client.volumes(ours(self._instance))
        return [ending for volume in volumes if (ending := _read(volume)) is not None]

    async def erase(self, group: GroupRef) -> None:
        """Remove the ending of the group, if it has one."""
        for ending in await self.list():
            if ending.group == group:
                await self.erase_all([ending])

    async def erase_all(self, endings: Iterable[Ending]) -> None:
        """Remove these endings."""
        for ending in endings:
            try:
                await self._client.remove_volume(ending_name(ending.group.name))
            except NotFound:
                continue


_TAKEN = "a foreign volume has the name of the volume that marks the stop"


def _read(volume: Mapping[str, Any]) -> Ending | None:
    labels = volume.get("Labels") or {}
    group = group_named(labels, labels)
    if group is None or group_of_ending(volume["Name"]) != group.name:
        return None
    ended = (number(rank) for rank in labels.get(_ENDED, "").split(","))
    return Ending(
        group,
        frozenset(rank for rank in ended if rank is not None),
        _moment(labels.get(KEPT_UNTIL)),
    )


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
