"""Places that are shared fairly: as long as none waits for one, holders keep theirs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A bounded number of places. Who waits gets the next one, in the order of coming.

    Each that waits ends the turn of the one that has held its place for the longest, but none before it has
    had so many seconds.
    """

    def __init__(self, places: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(places)
        self.seconds = seconds
        self._waiting = 0
        self._held: dict[asyncio.Timeout, float] = {}  # since when, by the loop's clock; the oldest first

    @asynccontextmanager
    async def one(self) -> AsyncIterator[asyncio.Timeout]:
        """Hold a place; what is done with it is cancelled when the turn is over, and `expired` says so."""
        clock = asyncio.get_running_loop().time
        self._waiting += 1
        try:
            if self._places.locked():
                self._end_one()
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            turn = asyncio.timeout(self.seconds if self._waiting else None)
            try:
                async with turn:
                    self._held[turn] = clock()
                    yield turn
            except TimeoutError:
                if not turn.expired():
                    raise
            finally:
                self._held.pop(turn, None)
        finally:
            self._places.release()

    def _end_one(self) -> None:
        """End the turn that has lasted longest, of those whose end has not been set."""
        for turn, since in self._held.items():
            if turn.when() is None:
                turn.reschedule(max(asyncio.get_running_loop().time(), since + self.seconds))
                return
