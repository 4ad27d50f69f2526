"""Free resources over time: of a whole flavor, or of one machine."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]


class Profile:
    """A step function from time to what is free. Before its first time there is nothing to ask."""

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
        self.free = [tuple(free)]
        for end in sorted(ends):
            free = [a + b for a, b in zip(free, ends[end], strict=True)]
            self.times.append(end)
            self.free.append(tuple(free))

    def earliest(self, need: Vector, length: float, after: float) -> float:
        """Return the first time from which the need is free for the length. Infinite: never."""
        times, free = self.times, self.free
        start = max(after, times[0])
        i = bisect_right(times, start) - 1
        while i < len(times) and (times[i] <= start or times[i] < start + length):
            if all(map(int.__le__, need, free[i])):
                i += 1
                continue
            i += 1
            while i < len(times) and not all(map(int.__le__, need, free[i])):
                i += 1
            if i == len(times):
                return math.inf
            start = times[i]
        return start

    def lowest(self, start: float, end: float) -> Vector:
        """Return the least that is free of each resource between two times."""
        first = max(0, bisect_right(self.times, start) - 1)
        last = max(first + 1, bisect_left(self.times, end))
        if last == first + 1:
            return self.free[first]
        return tuple(map(min, *self.free[first:last]))

    def take(self, need: Vector, start: float, end: float) -> None:
        """Take the need between two times."""
        first = self._split(start)
        last = self._split(end) if end < math.inf else len(self.times)
        for i in range(first, last):
            self.free[i] = tuple(map(int.__sub__, self.free[i], need))

    def _split(self, at: float) -> int:
        i = bisect_left(self.times, at)
        if i == len(self.times) or self.times[i] != at:
            self.times.insert(i, at)
            self.free.insert(i, self.free[i - 1])
        return i
