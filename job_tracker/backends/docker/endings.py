"""The intent to end a group, written down on the engine before anything is ended.

Labels of containers cannot be changed, so it is an object of its own: an empty volume, which costs
nothing, named after the group. It outlives this service, and every other service sees it. What is on it
tells an end by us from one by somebody else, and until when the containers are to stay that had ended by
themselves. The volume goes last; one without a container is of a stop that was cut short.
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
    """That a group is to end, and which of its ranks had ended by themselves before that."""

    group: GroupRef
    ended_before: frozenset[int] = frozenset()
    keep_until: datetime | None = None


class Endings:
    """The endings of the groups of the service named `instance`."""

    def __init__(self, client: DockerClient, *, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def write(self, ending: Ending, algorithm: str) -> Ending:
        """Write it down, and answer with what is written: one that was there before stays as it is.

        `algorithm` is the job's, of which the group's name is made.
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
            log.warning("a restart now would take the end of %s for a failure: %s", ending.group.name, _TAKEN)
            return ending
        return written

    async def list(self) -> list[Ending]:
        """All that are written down."""
        volumes = await self._client.volumes(ours(self._instance))
        return [ending for volume in volumes if (ending := _read(volume)) is not None]

    async def erase(self, group: GroupRef) -> None:
        """Forget it; one that was not written is fine."""
        for ending in await self.list():
            if ending.group == group:
                await self.erase_all([ending])

    async def erase_all(self, endings: Iterable[Ending]) -> None:
        """Forget these."""
        for ending in endings:
            try:
                await self._client.remove_volume(ending_name(ending.group.name))
            except NotFound:
                continue


_TAKEN = "the name of its marker is another volume's"


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
