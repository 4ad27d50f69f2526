"""Exports audit events to a file, one JSON object a line, in the order of their ids.

The file is opened for each batch, so it may be moved away or emptied at any time. A second file has the id of
the last exported event.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import repeat
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.store.audit import AuditStore

_POLL_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_CLOSING_SECONDS: Final = 2.0
_BATCH: Final = 500
_LONGEST_END: Final = 1 << 16
"""The number of bytes at the end of the file that are searched for the last line. A line is far shorter."""


class AuditExport:
    """Appends the store's events that are not in the file yet.

    A killed service leaves at most one incomplete line, which is cut off before the next line is written. The
    export continues after the last id in the file, or after the id in the position file if this id is higher.
    So no line is lost. Lines are written twice only if, between the write of a batch and the write of its
    position, the file is moved or emptied and the service is killed.
    """

    def __init__(self, store: AuditStore, path: Path, position: Path) -> None:
        """Export to the file `path`; `position` is the file with the id of the last exported event."""
        self._store = store
        self._path = path
        self._position = position
        self._last: int | None = None

    async def run(self) -> None:
        """Export until cancelled."""
        failure = f"audit.file: events cannot be written to {self._path}; they stay in the store"
        backoff = Backoff(_POLL_SECONDS, _LONGEST_PAUSE)
        await repeat(self.export, backoff, period=_POLL_SECONDS, failure=failure, expected=Exception)

    async def close(self) -> None:
        """Append the last events; give up if this fails or takes too long. Call it after `run` has ended."""
        with suppress(StoreUnavailable, OSError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.export()

    async def export(self) -> None:
        """Append all new events. Raises StoreUnavailable, and OSError if a file cannot be read or written."""
        if self._last is None:
            self._last = await asyncio.to_thread(self._exported)
        while events := await self._store.events_after(self._last, _BATCH):
            self._last = await asyncio.to_thread(self._append, events)

    def _exported(self) -> int:
        """Return the id of the last exported event; 0 if there is none."""
        with self._opened() as file:
            in_file = _last_id(file)
        with suppress(OSError, ValueError):
            return max(in_file, int(self._position.read_text()))
        return in_file

    def _append(self, events: Sequence[AuditEvent]) -> int:
        """Append the events that the file lacks, and sync the file. Return the id of the last event."""
        with self._opened() as file:
            # If two replicas share the file by mistake, each event is still written only once.
            last = _last_id(file)
            file.write(b"".join(map(line_of, (event for event in events if event.id > last))))
            file.flush()
            os.fsync(file.fileno())
        self._remember(events[-1].id)
        return events[-1].id

    def _remember(self, event_id: int) -> None:
        fresh = self._position.with_name(f"{self._position.name}.new")
        fresh.write_text(f"{event_id}\n")
        fresh.replace(self._position)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open and lock the file. If it ends with an incomplete line, cut this line off."""
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            start, end = _end_of(file)
            if not end.endswith(b"\n"):
                file.truncate(start + end.rfind(b"\n") + 1)
            yield file


def line_of(event: AuditEvent) -> bytes:
    """Return the event as a line of JSON."""
    values: dict[str, Any] = {
        "id": event.id,
        "at": event.at.isoformat(),
        "outcome": event.outcome.value,
        "action": event.action,
        "project": event.project,
        "target": event.target,
        "detail": event.detail,
        "count": event.count,
        "caller": event.caller,
        "means": event.means,
        "token_id": event.credential,
        "address": event.address,
        "request_id": event.request_id,
    }
    return json.dumps(values).encode() + b"\n"


def _last_id(file: BinaryIO) -> int:
    """Return the id in the last line; 0 if there is no last line, or if it has no id."""
    _, end = _end_of(file)
    try:
        return int(json.loads(end.splitlines()[-1])["id"])
    except (IndexError, KeyError, TypeError, ValueError):
        return 0


def _end_of(file: BinaryIO) -> tuple[int, bytes]:
    """Return the position at which the end of the file begins, and this end: at most _LONGEST_END bytes."""
    start = max(0, file.seek(0, os.SEEK_END) - _LONGEST_END)
    file.seek(start)
    return start, file.read()
