"""Collects denials and reads, and writes them to the store in batches.

Events of changes are not here: stores write them with the changes.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import repeat
from job_tracker.domain.audit import MORE, AuditEvent
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.store.audit import AuditStore

FLUSH_SECONDS: Final = 1.0
MERGED_SECONDS: Final = 60.0
"""The time in which equal events become one."""
MOST_KEPT: Final = 4096
"""The number of different events in memory."""
_CLOSING_SECONDS = 2.0
_LONGEST_PAUSE = 30.0
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of events: `burst` at once, and `per_second` in the long run."""

    burst: float
    per_second: float


OF_ALL: Final = Rate(1000, 10)
OF_ONE: Final = Rate(100, 1)
OF_STRANGERS: Final = Rate(100, 0.1)
"""All callers that could not be identified together: 9,000 events a day at most."""


class _Bucket:
    """The events that a rate still allows."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._level = rate.burst
        self._at = now

    def level(self, now: float) -> float:
        self._level = min(self.rate.burst, self._level + (now - self._at) * self.rate.per_second)
        self._at = now
        return self._level

    def take(self) -> None:
        self._level -= 1


@dataclass(slots=True)
class _Entry:
    """An event, how often it happened since it was last written, and when it is written next."""

    event: AuditEvent
    count: int
    due_at: float


class AuditTrail:
    """Keeps denials and reads. `note` returns at once, and a store that does not answer delays no call.

    The first of equal events is written within a second, and those of the next minute as one event with
    their number. Events beyond a rate, or beyond the memory, become one event of their caller with the
    action MORE. A killed service loses those that wait. If the answer to a write is lost, its events are
    written again.
    """

    def __init__(self, store: AuditStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._entries: dict[AuditEvent, _Entry] = {}
        self._all = _Bucket(OF_ALL, monotonic())
        self._buckets: dict[str, _Bucket] = {}
        self._flushing = asyncio.Lock()

    def note(self, event: AuditEvent) -> None:
        """Keep the event; an EventObserver."""
        now = self._monotonic()
        key = _key_of(event)
        entry = self._entries.get(key)
        if entry is None and not self._may_keep(event.caller, now):
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
        """Write what is due every second, until cancelled."""
        backoff = Backoff(FLUSH_SECONDS, _LONGEST_PAUSE)
        failure = "denials and reads cannot be written to the audit"
        await repeat(self.flush, backoff, period=FLUSH_SECONDS, failure=failure, expected=StoreUnavailable)

    async def flush(self, *, everything: bool = False) -> None:
        """Write the events that are due. Raises StoreUnavailable, and then keeps them."""
        async with self._flushing:
            await self._flush(self._monotonic(), everything=everything)

    async def _flush(self, now: float, *, everything: bool) -> None:
        due = {key: each for key, each in self._entries.items() if everything or each.due_at <= now}
        written = {key: each.count for key, each in due.items() if each.count}
        if written:
            await self._store.add_events([replace(due[key].event, count=n) for key, n in written.items()])
        for key, entry in due.items():
            if key in written:
                entry.count -= written[key]
                entry.due_at = now + MERGED_SECONDS
            elif not entry.count:
                del self._entries[key]
        full = [name for name, each in self._buckets.items() if each.level(now) >= each.rate.burst]
        for name in full:
            del self._buckets[name]

    async def close(self) -> None:
        """Write everything, if the store answers soon. Call it before `run` is cancelled."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.flush(everything=True)

    def _may_keep(self, caller: str, now: float) -> bool:
        """Return whether there is room for another event of the caller, and take it."""
        own = self._buckets.get(caller)
        if own is None:
            own = self._buckets[caller] = _Bucket(OF_ONE if caller else OF_STRANGERS, now)
        if len(self._entries) >= MOST_KEPT or own.level(now) < 1 or self._all.level(now) < 1:
            return False
        own.take()
        self._all.take()
        return True


def _key_of(event: AuditEvent) -> AuditEvent:
    """Return the event without the values in which equal events differ."""
    return replace(event, at=_NEVER, request_id="", count=1)
