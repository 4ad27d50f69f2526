"""Collects audit events of denials and of reads, and writes them to the store in batches.

This module does not handle the events of changes: the stores write them together with the changes.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from job_tracker.common.backoff import Backoff
from job_tracker.common.rates import Rate
from job_tracker.common.tasks import repeat
from job_tracker.domain.audit import MORE, AuditEvent
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.store.audit import AuditStore

FLUSH_SECONDS: Final = 1.0
MERGED_SECONDS: Final = 60.0
"""After an event is written, equal events within this number of seconds become one event."""
MOST_KEPT: Final = 4096
"""If this number of different events is in memory, further ones are merged into events with the action MORE.

From twice this number on, new events with this action do not name their callers.
"""
_BATCH: Final = 500
_CLOSING_SECONDS: Final = 2.0
_LONGEST_PAUSE: Final = 30.0
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Limit(NamedTuple):
    """A limit for events: how many a second, and how many at once after a pause."""

    per_second: float
    burst: int


OF_ALL: Final = Limit(10, 1000)
OF_ONE: Final = Limit(1, 100)
OF_STRANGERS: Final = Limit(0.1, 100)
"""The limit for all unidentified callers together: about 9,000 events a day."""


@dataclass(slots=True)
class _Entry:
    """An event, how often it happened since its last write, and when it is written next."""

    event: AuditEvent
    count: int
    due_at: float


class AuditTrail:
    """Keeps audit events of denials and of reads. `note` returns at once, even if the store does not answer.

    The first of several equal events is written within a second. Equal events of the next minute are written
    as one event with a count. If a caller or all callers together exceed a limit, or if MOST_KEPT different
    events are in memory, the further events of each caller become one event with the action MORE. If the
    service is killed, it loses the events that it has not written. If the answer to a write is lost, the
    events of this write are written again.
    """

    def __init__(self, store: AuditStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._entries: dict[AuditEvent, _Entry] = {}
        self._of_all = Rate(*OF_ALL, clock=monotonic)
        self._of_one = Rate(*OF_ONE, clock=monotonic)
        self._of_strangers = Rate(*OF_STRANGERS, clock=monotonic)
        self._flushing = asyncio.Lock()

    def note(self, event: AuditEvent) -> None:
        """Keep the event until it is written. This method is an EventObserver."""
        now = self._monotonic()
        key = _key_of(event)
        entry = self._entries.get(key)
        if entry is None and not self._may_keep(event.caller):
            event = replace(event, action=MORE, project="", target="", detail="", address="", credential="")
            key = _key_of(event)
            entry = self._entries.get(key)
            if entry is None and len(self._entries) >= 2 * MOST_KEPT:
                event = AuditEvent(at=event.at, action=MORE, outcome=event.outcome)
                key = _key_of(event)
                entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(event, 1, now)
        elif entry.count:
            entry.count += 1
        else:
            entry.event, entry.count = event, 1

    async def run(self) -> None:
        """Write the events that are due, once a second, until cancelled."""
        backoff = Backoff(FLUSH_SECONDS, _LONGEST_PAUSE)
        failure = "events of denials and reads cannot be written to the audit"
        await repeat(self.flush, backoff, period=FLUSH_SECONDS, failure=failure, expected=StoreUnavailable)

    async def flush(self, *, everything: bool = False) -> None:
        """Write the events that are due; with `everything`, write all events.

        If the store does not answer, keep the events that are not yet written, and raise StoreUnavailable.
        """
        async with self._flushing:
            await self._flush(self._monotonic(), everything=everything)

    async def _flush(self, now: float, *, everything: bool) -> None:
        due = {key: each for key, each in self._entries.items() if everything or each.due_at <= now}
        waiting = [entry for entry in due.values() if entry.count]
        for start in range(0, len(waiting), _BATCH):
            part = [(entry, entry.count) for entry in waiting[start : start + _BATCH]]
            await self._store.add_events([replace(entry.event, count=count) for entry, count in part])
            for entry, count in part:
                entry.count -= count  # equal events may have arrived during the write
                entry.due_at = now + MERGED_SECONDS
        for key, entry in due.items():
            if entry.due_at <= now and not entry.count:
                del self._entries[key]

    async def close(self) -> None:
        """Write all events; give up if the store does not answer soon. Call this before cancelling `run`."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.flush(everything=True)

    def _may_keep(self, caller: str) -> bool:
        """Return whether another event of the caller may be kept. If so, count it towards the limits."""
        own = self._of_one if caller else self._of_strangers
        if len(self._entries) >= MOST_KEPT or own.take(caller):
            return False
        if self._of_all.take(""):
            own.give_back(caller)
            return False
        return True


def _key_of(event: AuditEvent) -> AuditEvent:
    """Return the event's key: the event without its time, request id and count. Events with the same key
    count as equal.
    """
    return replace(event, at=_NEVER, request_id="", count=1)
