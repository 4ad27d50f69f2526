"""Free resources over time: of a whole flavor, or of one machine."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]


class Profile:
    """A step function from time to what is free, one column for each resource."""

    def __init__(self, now: float, capacity: Vector, held: Iterable[tuple[float, Vector]]) -> None:
        """Start with what is held now, and until when. An infinite end is never given back."""
        free = list(capacity)
        ends: dict[float, list[int]] = {}
        for end, amounts in held:
            back = ends.setdefault(end, [0] * len(free)) if end < math.inf else None
            for i, amount in enumerate(amounts):
                free[i] -= amount
                if back is not None:
                    back[i] += amount
        self.times = [now]
        self._columns = [[amount] for amount in free]
        for end in sorted(ends):
            self.times.append(end)
            for column, amount in zip(self._columns, ends[end], strict=True):
                column.append(column[-1] + amount)

    def earliest(self, need: Vector, length: float, after: float) -> float:
        """Return the first time from which the need is free for the length. Infinite: never."""
        start = max(after, self.times[0])
        asked = [(column, n) for column, n in zip(self._columns, need, strict=True) if n]
        while start < math.inf:
            before = start
            for column, amount in asked:
                start = self._earliest(column, amount, length, start)
            if start == before or len(asked) == 1:
                break
        return start

    def fits_at(self, need: Vector, length: float, at: float) -> bool:
        """Return whether the need is free for the length from exactly this time."""
        times = self.times
        first = max(0, bisect_right(times, at) - 1)
        last = max(first + 1, bisect_left(times, at + length))
        asked = [(column, n) for column, n in zip(self._columns, need, strict=True) if n]
        return all(column[first] >= n for column, n in asked) and all(
            min(column[first:last]) >= n for column, n in asked
        )

    def lowest(self, start: float, end: float) -> Vector:
        """Return the least that is free of each resource between two times."""
        first = max(0, bisect_right(self.times, start) - 1)
        last = max(first + 1, bisect_left(self.times, end))
        return tuple(min(column[first:last]) for column in self._columns)

    def take(self, need: Vector, start: float, end: float) -> None:
        """Take the need between two times."""
        first = self._split(start)
        last = self._split(end) if end < math.inf else len(self.times)
        for column, amount in zip(self._columns, need, strict=True):
            if amount:
                column[first:last] = [free - amount for free in column[first:last]]

    def _earliest(self, column: list[int], amount: int, length: float, start: float) -> float:
        times = self.times
        i = bisect_right(times, start) - 1
        count = len(times)
        while i < count and (times[i] <= start or times[i] < start + length):
            if column[i] < amount:
                i += 1
                while i < count and column[i] < amount:
                    i += 1
                if i == count:
                    return math.inf
                start = times[i]
            i += 1
        return start

    def _split(self, at: float) -> int:
        i = bisect_left(self.times, at)
        if i == len(self.times) or self.times[i] != at:
            self.times.insert(i, at)
            for column in self._columns:
                column.insert(i, column[i - 1])
        return i
