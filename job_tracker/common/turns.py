"""A limit on concurrent work that is shared fairly between callers."""

import asyncio
from collections import Counter


class FairTurns:
    """Grants a limited number of turns at once.

    Each caller gets only some of the turns, so a single caller never makes the others wait. A free turn goes
    to the waiting caller with the fewest turns. Among equals, it goes to the first in line. A caller goes to
    the end of the line when it begins to wait, and when it gets a turn.
    """

    def __init__(self, at_once: int, for_one: int) -> None:
        """Grant `at_once` turns at a time, and at most `for_one` of them to one caller."""
        self.at_once = self._free = at_once
        self.for_one = for_one
        self._taken: Counter[str] = Counter()
        # The futures of waiting calls, by caller. A new caller, or one that gets a turn, goes to the end.
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    @property
    def length(self) -> int:
        """Return the number of calls that have a turn or wait for one."""
        return self._taken.total() + sum(map(len, self._waiting.values()))

    async def take(self, caller: str) -> None:
        """Wait for a turn, which ends with `give`. A cancelled call takes no turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, {})[turn] = None
        self._pass_on()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn was granted just before the cancel
                self.give(caller)
            elif turn in self._waiting.get(caller, ()):
                self._forget(caller, turn)
            raise

    def give(self, caller: str) -> None:
        """End a turn of the caller."""
        self._free += 1
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        self._pass_on()

    def wanted(self) -> Counter[str]:
        """For each caller that has turns, return the number of calls that wait until one of its turns ends.

        If a caller has as many turns as one caller may have (`for_one`), its waiting calls count for the
        caller itself. All other waiting calls count for the caller with the most turns.
        """
        wanted = Counter[str]()
        for caller, waiting in self._waiting.items():
            has_all = self._taken[caller] >= self.for_one
            wanted[caller if has_all else max(self._taken, key=self._taken.__getitem__)] += len(waiting)
        return wanted

    def _pass_on(self) -> None:
        while self._free:
            below_limit = (caller for caller in self._waiting if self._taken[caller] < self.for_one)
            caller = min(below_limit, key=self._taken.__getitem__, default=None)
            if caller is None:
                return
            turn = next(iter(self._waiting[caller]))
            self._forget(caller, turn)
            if turn.cancelled():  # the task of this call was cancelled, and has not run since
                continue
            if caller in self._waiting:  # the caller goes to the end of the line
                self._waiting[caller] = self._waiting.pop(caller)
            self._free -= 1
            self._taken[caller] += 1
            turn.set_result(None)

    def _forget(self, caller: str, turn: asyncio.Future[None]) -> None:
        del self._waiting[caller][turn]
        if not self._waiting[caller]:
            del self._waiting[caller]
