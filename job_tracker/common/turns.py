"""Turns that are shared fairly between callers, by their keys."""

import asyncio
from collections import Counter


class FairTurns:
    """At most so many turns at once, and fewer for one caller, so that another never waits for it alone.

    A turn that is free goes to the caller that has the fewest now; among these, callers take turns.
    """

    def __init__(self, at_once: int, for_one: int) -> None:
        self.at_once = self._free = at_once
        self.for_one = for_one
        self._taken: Counter[str] = Counter()
        # Futures of those that wait, in order, by caller; who has waited longest for a turn comes first.
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    @property
    def length(self) -> int:
        """How many have a turn, or wait for one."""
        return self._taken.total() + sum(map(len, self._waiting.values()))

    async def take(self, who: str) -> None:
        """Wait for a turn, which `give` ends. Nothing is taken if the waiting is given up."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, {})[turn] = None
        self._pass_on()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was granted a moment before
                self.give(who)
            elif turn in self._waiting.get(who, ()):
                self._forget(who, turn)
            raise

    def give(self, who: str) -> None:
        """End a turn."""
        self._free += 1
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]
        self._pass_on()

    def wanted(self) -> Counter[str]:
        """How many turns others wait for, by who has them.

        Who has as many as one may have waits for its own, all others for those of who has the most.
        """
        wanted = Counter[str]()
        for who, waiting in self._waiting.items():
            has_all = self._taken[who] >= self.for_one
            wanted[who if has_all else max(self._taken, key=self._taken.__getitem__)] += len(waiting)
        return wanted

    def _pass_on(self) -> None:
        while self._free:
            able = (who for who in self._waiting if self._taken[who] < self.for_one)
            who = min(able, key=self._taken.__getitem__, default=None)
            if who is None:
                return
            turn = next(iter(self._waiting[who]))
            self._forget(who, turn)
            if turn.cancelled():  # given up a moment before, by a task that has not run since
                continue
            if who in self._waiting:  # it goes to the end of the row
                self._waiting[who] = self._waiting.pop(who)
            self._free -= 1
            self._taken[who] += 1
            turn.set_result(None)

    def _forget(self, who: str, turn: asyncio.Future[None]) -> None:
        del self._waiting[who][turn]
        if not self._waiting[who]:
            del self._waiting[who]
