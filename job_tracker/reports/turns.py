"""A limited number of places that tasks share in turns. A task keeps its place while no other task waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A bounded number of places. Tasks get them in the order in which they ask (`one`).

    A turn is the time for which a task holds a place. For each task that has to wait, the oldest turn is
    ended as soon as it has lasted `seconds`.
    """

    def __init__(self, places: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(places)
        self.seconds = seconds
        self._waiting = 0
        self._held: dict[asyncio.Timeout, float] = {}  # start times by the loop's clock, the oldest first

    @asynccontextmanager
    async def one(self) -> AsyncIterator[asyncio.Timeout]:
        """Hold a place during the block.

        If the turn is ended during the block, the block is cancelled, and `expired()` of the yielded object
        is true.
        """
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
        """Set an end for the oldest turn that has no end yet."""
        for turn, since in self._held.items():
            if turn.when() is None:
                turn.reschedule(max(asyncio.get_running_loop().time(), since + self.seconds))
                return
