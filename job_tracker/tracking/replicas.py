"""The replicas of the service.

Each replica writes a note about itself into the store, so that operators see which replicas there are.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import TrackerError
from job_tracker.store.scheduling import SchedulingStore

log = logging.getLogger(__name__)

REPLICA: Final = "replica"
"""The kind of the notes that replicas write. The keys of these notes are the names of the replicas."""
PERIOD_SECONDS: Final = 30.0
_MISSING_SECONDS: Final = 3 * PERIOD_SECONDS
_FORGOTTEN_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A process of the service. Times are Unix seconds."""

    name: str
    """The name: HOST/PID."""
    version: str
    started_at: float
    address: str = ""
    """The address of the replica's API."""
    seen_at: float = 0.0
    """The time at which the replica wrote its last note."""
    is_leading: bool = False
    store_seconds: float = 0.0
    """The seconds that the store took to write the replica's previous note. 0: unknown."""

    def is_missing(self, now: float) -> bool:
        """Return whether the replica has written no note for too long.

        A missing replica was killed, or cannot reach the store.
        """
        return now - self.seen_at > _MISSING_SECONDS


_REPLICA: Final = TypeAdapter(Replica)


class Presence:
    """Keeps the note of this replica up to date."""

    def __init__(
        self,
        store: SchedulingStore,
        replica: Replica,
        clock: Callable[[], float] = lambda: utc_now().timestamp(),
        period: float = PERIOD_SECONDS,
    ) -> None:
        self._store = store
        self._replica = replica
        self._clock = clock
        self._period = period
        self._changed = asyncio.Event()
        self._is_written = False

    def serve_at(self, address: str) -> None:
        """Set the address of this replica's API. Call this before `run` writes the first note."""
        self._replica = replace(self._replica, address=address)

    def lead(self, is_leading: bool) -> None:
        """Make `run` soon write that this replica leads, or that it no longer leads."""
        self._replica = replace(self._replica, is_leading=is_leading)
        self._changed.set()

    async def run(self) -> None:
        """Write the note periodically.

        Also remove the notes of replicas that have written none for a day, and notes that cannot be read.
        """
        while True:
            self._changed.clear()
            try:
                await self._write()
            except TrackerError as error:
                log.debug("the note of this replica was not written: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._changed.wait()

    async def close(self) -> None:
        """Remove the note. May be repeated."""
        if self._is_written:
            self._is_written = False
            with suppress(TrackerError):
                await self._store.keep_scheduling_notes({(REPLICA, self._replica.name): None})

    async def _write(self) -> None:
        now = self._clock()
        old = [
            key
            for key, text in (await self._store.scheduling_notes(REPLICA)).items()
            if key != self._replica.name and _is_forgotten(text, now)
        ]
        note = json.dumps(asdict(replace(self._replica, seen_at=now)))
        began = time.monotonic()
        self._is_written = True
        await self._store.keep_scheduling_notes(
            {(REPLICA, self._replica.name): note, **{(REPLICA, key): None for key in old}}
        )
        self._replica = replace(self._replica, store_seconds=time.monotonic() - began)


async def replicas_of(store: SchedulingStore) -> list[Replica]:
    """Return all replicas whose notes this version can read, sorted by name."""
    notes = await store.scheduling_notes(REPLICA)
    return sorted(
        (found for text in notes.values() if (found := _read(text)) is not None), key=lambda each: each.name
    )


def _is_forgotten(text: str, now: float) -> bool:
    replica = _read(text)
    return replica is None or now - replica.seen_at > _FORGOTTEN_SECONDS


def _read(text: str) -> Replica | None:
    """Return the replica of a note; None if this version cannot read the note."""
    try:
        return _REPLICA.validate_json(text)
    except ValueError:
        return None
