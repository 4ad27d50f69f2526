"""Free resources over time: of a whole flavor, or of one machine."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]
"""Amounts of resources, in the order of those that are free."""
Return: TypeAlias = tuple[float, Mapping[str, int]]
"""When resources are given back, and how much of them by name."""


def in_order(returned: Iterable[Return]) -> list[Return]:
    """Return what is given back, one entry for each time, the first one first. Infinite: never."""
    found: dict[float, dict[str, int]] = {}
    for time, amounts in returned:
        if time == math.inf:
            continue
        back = found.setdefault(time, {})
        for name, amount in amounts.items():
            back[name] = back.get(name, 0) + amount
    return sorted(found.items(), key=lambda entry: entry[0])


class Profile:
    """A step function from time to what is free, one column for each resource."""

    def __init__(self, now: float, free: Mapping[str, int], returned: Sequence[Return] = ()) -> None:
        """Start with what is free now by resource, and with what is given back later, in order of time."""
        self.times = [now, *(time for time, _ in returned)]
        self._columns = [
            list(accumulate((amounts.get(name, 0) for _, amounts in returned), initial=amount))
            for name, amount in free.items()
        ]

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
