"""Merges several logs by time."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress

from job_tracker.common.tasks import end
from job_tracker.logs.records import TIME, is_partial, is_time, nanoseconds, records_of
from job_tracker.logs.writing import time_at

WINDOW_SECONDS = 1.0


async def merged(
    logs: Mapping[int, AsyncGenerator[bytes, None]], *, window: float | None
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield pieces of all logs, each with its rank, ordered by the times of their records.

    One piece of each log is held in memory. A record waits until the next record of every other log is known.
    With a `window`, a record waits only until it is `window` seconds old and the logs whose next record is
    not known have been silent for `window` seconds. If one of these logs then yields an earlier record,
    that record is out of order. Errors of the logs are passed on.
    """
    heads = _Heads(logs, window)
    try:
        while await heads.wait():
            yield heads.take()
    finally:
        await heads.close()


class _Head:
    """The next records of one log."""

    def __init__(self, records: list[bytes], arrived: float) -> None:
        self.records = records
        self.arrived = arrived
        self.taken = asyncio.Event()

    @property
    def time(self) -> bytes:
        return self.records[0][:TIME]


class _Heads:
    def __init__(self, logs: Mapping[int, AsyncGenerator[bytes, None]], window: float | None) -> None:
        self._clock = asyncio.get_running_loop().time
        self._window = window
        self._heads: dict[int, _Head] = {}
        self._asked = dict.fromkeys(logs, self._clock())
        self._changed = asyncio.Event()
        self._readers = {
            rank: asyncio.create_task(self._read(rank, pieces), name=f"log of rank {rank}")
            for rank, pieces in logs.items()
        }
        for reader in self._readers.values():
            reader.add_done_callback(lambda _: self._changed.set())

    async def wait(self) -> bool:
        """Wait until `take` may be called. Return False when all logs have ended."""
        while True:
            self._changed.clear()
            for reader in self._readers.values():
                if reader.done():
                    reader.result()  # passes on an error of the log
            silent = self._silent()
            if not silent:
                return bool(self._heads)
            patience = self._patience(silent)
            if patience is not None and patience <= 0:
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._changed.wait()

    def take(self) -> tuple[int, bytes]:
        """Return the rank whose log has the earliest records, and these records.

        Records that are later than the next record of another log are left for a later call. With a window,
        while the next record of some log is not known, records younger than the window are left, too.
        """
        rank = min(self._heads, key=lambda each: self._heads[each].time)
        head = self._heads[rank]
        bounds = [other.time for each, other in self._heads.items() if each != rank]
        if self._window is not None and self._silent():
            bounds.append(time_at(time.time_ns() - int(self._window * 1e9)))
        number = _run(head.records, min(bounds, default=None))
        piece = b"".join(head.records[:number])
        del head.records[:number]
        if not head.records:
            del self._heads[rank]
            self._asked[rank] = self._clock()
            head.taken.set()
        return rank, piece

    def _silent(self) -> list[int]:
        """Return the ranks whose logs have not ended and whose next record is not known yet."""
        return [
            rank for rank, reader in self._readers.items() if not reader.done() and rank not in self._heads
        ]

    def _patience(self, silent: list[int]) -> float | None:
        """Return the seconds for which the first record still has to wait.

        None: it waits until the next record of every log is known.
        """
        if not self._heads or self._window is None:
            return None
        first, now = min(self._heads.values(), key=lambda head: head.time), self._clock()
        # Training code can write to its log file, so a record may have no valid time.
        age = (time.time_ns() - nanoseconds(first.time)) / 1e9 if is_time(first.time) else 0.0
        # The clock of the record's machine may be ahead of this machine's clock. If so, the time of the
        # arrival counts.
        until_due = self._window - max(age, now - first.arrived)
        until_all_are_silent = max(self._asked[rank] for rank in silent) + self._window - now
        return max(until_due, until_all_are_silent)

    async def close(self) -> None:
        await end(*self._readers.values())

    async def _read(self, rank: int, pieces: AsyncGenerator[bytes, None]) -> None:
        try:
            async for piece in pieces:
                self._heads[rank] = head = _Head(records_of(piece), self._clock())
                self._changed.set()
                await head.taken.wait()
        finally:
            await pieces.aclose()


def _run(records: list[bytes], until: bytes | None) -> int:
    """Return how many records to take from the beginning: those that are not later than `until`.

    If `until` is None, take all records. The first record is always taken. The parts of one line stay
    together: if a part of a line is taken, the later parts are taken, too.
    """
    if until is None:
        return len(records)
    number = 1
    while number < len(records) and (records[number][:TIME] <= until or is_partial(records[number - 1])):
        number += 1
    return number
