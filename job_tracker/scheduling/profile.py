"""The free resources of a flavor over time, as far as it is known who ends when."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from job_tracker.scheduling.model import Gang, Resources


class FreeOverTime:
    """What is free of each limited resource of one flavor, in steps from now on."""

    def __init__(self, now: float, capacity: Resources, used: Iterable[tuple[float, Resources]]) -> None:
        """`used` are what running gangs use, each with the time of its expected end; infinity: unknown."""
        self._resources = tuple(capacity)
        self.capacity = self._vector(capacity)
        free = list(self.capacity)
        ends: dict[float, list[int]] = {}
        for end, resources in used:
            amounts = self._vector(resources)
            free = [have - amount for have, amount in zip(free, amounts, strict=True)]
            if end < math.inf:
                returned = ends.setdefault(end, [0] * len(free))
                for index, amount in enumerate(amounts):
                    returned[index] += amount
        self._times, self._free = [now], [free]
        for end in sorted(ends):
            self._times.append(end)
            self._free.append([have + back for have, back in zip(self._free[-1], ends[end], strict=True)])
        self.free_now = tuple(free)
        """What no running gang uses now, reserved or not."""

    def vector(self, gang: Gang, trainers: int) -> tuple[int, ...]:
        """Return what a gang with so many trainers needs, in the order of the flavor's resources."""
        return self._vector(needs_of(gang, trainers))

    @property
    def is_full(self) -> bool:
        """Return whether nothing can start now."""
        return bool(self._resources) and any(amount <= 0 for amount in self._free[0])

    def fits_now(self, needs: Iterable[int], duration: float) -> bool:
        """Return whether so much is free from now on for so long."""
        end = self._times[0] + duration
        needed = tuple(needs)
        for time, free in zip(self._times, self._free, strict=True):
            if time >= end:
                return True
            if any(have < want for have, want in zip(free, needed, strict=True)):
                return False
        return True

    def earliest(self, needs: Iterable[int], duration: float) -> float:
        """Return the first time from which so much is free for so long; infinity: it is not known."""
        needed = tuple(needs)
        start: float | None = None
        for time, free in zip(self._times, self._free, strict=True):
            if start is not None and time >= start + duration:
                return start
            if any(have < want for have, want in zip(free, needed, strict=True)):
                start = None
            elif start is None:
                start = time
        return math.inf if start is None else start

    def take(self, start: float, duration: float, needs: Iterable[int]) -> None:
        """Use so much from `start` on for so long."""
        first, last = self._step(start), self._step(start + duration)
        needed = tuple(needs)
        for place in range(first, last):
            self._free[place] = [have - want for have, want in zip(self._free[place], needed, strict=True)]

    def _step(self, time: float) -> int:
        """Return the place of the step that begins at this time; make it if there is none."""
        if time == math.inf:
            return len(self._times)
        place = bisect_left(self._times, time)
        if place == len(self._times) or self._times[place] != time:
            self._times.insert(place, time)
            self._free.insert(place, self._free[place - 1])
        return place

    def _vector(self, resources: Resources) -> tuple[int, ...]:
        return tuple(resources.get(name, 0) for name in self._resources)


def needs_of(gang: Gang, trainers: int) -> Mapping[str, int]:
    """Return all that a gang with so many trainers needs."""
    needs: dict[str, int] = {}
    for index, part in enumerate(gang.parts):
        count = trainers if index == 0 else part.count
        for resource, amount in part.each.items():
            needs[resource] = needs.get(resource, 0) + count * amount
    return needs
