"""Free resources over time: of a whole flavor, or of one machine.

Running gangs only release resources, so the amounts that they leave free only grow. Resources that are
reserved for later are stored separately, as a few steps. Within a step, the free amounts are smallest at the
beginning. So a search checks only the beginnings of these steps, however many gangs run.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]
"""An amount for each resource of a profile, in the order of these resources."""
Return: TypeAlias = tuple[float, Mapping[str, int]]
"""The time at which resources are released, and their amounts by name."""


def in_order(returned: Iterable[Return]) -> list[Return]:
    """Return the entries in the order of their times.

    Resources that are never released (at infinity) are left out.
    """
    return sorted((each for each in returned if each[0] < math.inf), key=itemgetter(0))


class Profile:
    """A step function from time to free resources, with one column for each resource."""

    def __init__(self, now: float, free: Mapping[str, int], returned: Sequence[Return] = ()) -> None:
        """Start with the amounts that are free now, by resource, and with the later returns in order of
        time.
        """
        self._now = now
        self._names = tuple(free)
        self._free = list(free.values())
        self._returned = returned
        self._begun: list[Return] = []
        """The ends of uses that begin now, with their amounts."""
        self._grown: tuple[list[float], list[list[int]]] | None = None
        self._first: dict[tuple[int, int], float] = {}
        """By column and amount: a time before which this amount of the column's resource is never free."""
        self._steps = [now]
        self._taken = [[0] for _ in free]

    def copy(self) -> "Profile":
        """Return a copy, on which a caller can try whether resources can be taken."""
        other = Profile(self._now, dict(zip(self._names, self._free, strict=True)), self._returned)
        other._begun, other._first = [*self._begun], dict(self._first)
        other._steps, other._taken = [*self._steps], [[*column] for column in self._taken]
        return other

    def times(self) -> list[float]:
        """Return the times at which resources may become free."""
        return sorted({*self._growing()[0], *self._steps})

    def earliest(self, need: Vector, length: float, after: float) -> float:
        """Return the first time, not before `after`, from which the need is free for `length` seconds.

        Infinite: never.
        """
        start, before = max(after, self._now), -math.inf
        while before < start < math.inf:
            before = start
            for column, amount in enumerate(need):
                start = self._earliest(column, amount, length, start) if amount else start
        return start

    def fits_at(self, need: Vector, length: float, at: float) -> bool:
        """Return whether the need is free from exactly the time `at`, for `length` seconds."""
        for column, amount in enumerate(need):
            # The amounts that are free now are quick to check, and usually give the answer.
            if at <= self._now and amount > self._free[column] - self._taken[column][0]:
                later = math.nextafter(self._now, math.inf)
                self._first[column, amount] = max(later, self._first.get((column, amount), later))
                return False
            if amount and self._earliest(column, amount, length, at) > at:
                return False
        return True

    def lowest(self, start: float, end: float) -> Vector:
        """Return the smallest free amount of each resource between two times."""
        if start <= self._now and len(self._steps) == 1:
            return tuple(self._free)  # nothing is reserved for later, so the amounts only grow
        times, columns = self._growing()
        first, last = self._between(start, end)
        places = [bisect_right(times, max(start, step)) - 1 for step in self._steps[first:last]]
        return tuple(
            min(free[place] - less for place, less in zip(places, taken[first:last], strict=True))
            for free, taken in zip(columns, self._taken, strict=True)
        )

    def take(self, need: Vector, start: float, end: float) -> None:
        """Subtract the need from the free amounts between `start` and `end`.

        If the need is negative, its amounts are added. In this case, `start` must not be after now.
        """
        if start <= self._now:
            if min(need, default=0) < 0:
                self._first.clear()
            self._free = [free - amount for free, amount in zip(self._free, need, strict=True)]
            if end < math.inf:
                self._begun.append((end, dict(zip(self._names, need, strict=True))))
            self._grown = None
            return
        first = self._split(start)
        last = self._split(end) if end < math.inf else len(self._steps)
        for column, amount in zip(self._taken, need, strict=True):
            if amount:
                column[first:last] = [taken + amount for taken in column[first:last]]

    def _earliest(self, column: int, amount: int, length: float, start: float) -> float:
        # `take` clears `_first` when it adds amounts. Until then, it only subtracts amounts, so there is
        # never enough before a time that an earlier search has found.
        known = self._first.get((column, amount), self._now)
        is_first = start <= known
        start = max(start, known)
        steps, taken, free = self._steps, self._taken[column], self._free[column]
        first = step = bisect_right(steps, start) - 1
        while step < len(steps) and (step == first or steps[step] < start + length):
            wanted = amount + taken[step]
            enough = start if wanted <= free else self._reaches(column, wanted)
            if enough <= max(start, steps[step]):
                if is_first:
                    self._first[column, amount] = start
                    is_first = False
                last = bisect_left(steps, start + length, step + 1)
                # This check is quick and usually succeeds. Then there is enough in all further steps, too.
                if max(taken[step:last]) <= taken[step]:
                    return start
                step += 1
            elif step + 1 < len(steps) and enough >= steps[step + 1]:
                first = step = step + 1
                start = steps[step]
            elif enough == math.inf:
                return enough
            else:
                first, start = step, enough
        return start

    def _reaches(self, column: int, amount: int) -> float:
        """Return the time from which the amount of this resource is free, without regard to reservations.

        Infinite: never.
        """
        times, columns = self._growing()
        place = bisect_left(columns[column], amount)
        return times[place] if place < len(times) else math.inf

    def _between(self, start: float, end: float) -> tuple[int, int]:
        """Return the range of the indices of steps between two times.

        The range includes at least the step at the first time.
        """
        first = max(0, bisect_right(self._steps, start) - 1)
        return first, max(first + 1, bisect_left(self._steps, end))

    def _growing(self) -> tuple[list[float], list[list[int]]]:
        """Return the free amounts over time without regard to reservations: the times, and for each
        resource its amounts.
        """
        if self._grown is None:
            returned = in_order([*self._returned, *self._begun]) if self._begun else self._returned
            # If a gang releases resources early, its planned end has two entries that cancel each other: one
            # adds these resources, as planned before, and the other subtracts them, because they are free
            # already. Only the sum at each time is kept: these sums only grow, and searches rely on this.
            last = {time: place for place, time in enumerate([self._now, *(time for time, _ in returned)])}
            columns = []
            for name, free in zip(self._names, self._free, strict=True):
                sums = [*accumulate((amounts.get(name, 0) for _, amounts in returned), initial=free)]
                columns.append([sums[place] for place in last.values()])
            self._grown = [*last], columns
        return self._grown

    def _split(self, at: float) -> int:
        place = bisect_left(self._steps, at)
        if place == len(self._steps) or self._steps[place] != at:
            self._steps.insert(place, at)
            for column in self._taken:
                column.insert(place, column[place - 1])
        return place
