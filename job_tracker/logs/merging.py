"""Several logs as one, in the order of time."""

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
    """Pieces of all logs, each with its rank, in the order of their records' times.

    Of each log, one piece is held. A record waits until every log has told what comes next, or has ended;
    with a `window`, until it is so many seconds old and those that are silent have been so for as long.
    What they tell later than that is out of order. Raises what the logs raise.
    """
    heads = _Heads(logs, window)
    try:
        while await heads.are_there():
            yield heads.take()
    finally:
        await heads.close()


class _Head:
    """What is to come next of one log."""

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

    async def are_there(self) -> bool:
        """Wait until one may be taken; False when all logs have ended."""
        while True:
            self._changed.clear()
            for reader in self._readers.values():
                if reader.done():
                    reader.result()  # raises what the log did
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
        """The first records of the log whose turn it is, up to where it is another's."""
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
        """The logs that go on, and of which nobody knows what is next."""
        return [
            rank for rank, reader in self._readers.items() if not reader.done() and rank not in self._heads
        ]

    def _patience(self, silent: list[int]) -> float | None:
        """For how many seconds the first record still has to wait; None: as long as it takes."""
        if not self._heads or self._window is None:
            return None
        first, now = min(self._heads.values(), key=lambda head: head.time), self._clock()
        # Training can write in its log, too, what has no time.
        age = (time.time_ns() - nanoseconds(first.time)) / 1e9 if is_time(first.time) else 0.0
        # Its machine's clock may be ahead of ours: then it is its arrival that counts.
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
    """How many of the records come before that time; one that goes on takes the next along."""
    if until is None:
        return len(records)
    number = 1
    while number < len(records) and (records[number][:TIME] <= until or is_partial(records[number - 1])):
        number += 1
    return number
