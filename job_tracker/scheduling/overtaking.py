"""Limits how often waiting jobs are overtaken by others, over all passes together."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from job_tracker.scheduling.model import Promise, Reserve


@dataclass(slots=True)
class Blocker:
    """A waiting job that only a limited number of other jobs may overtake."""

    job_id: int
    promise: Promise
    """The promise that the job got in this pass."""
    overtaken: int


class Overtaking:
    """The blockers of a pass by place.

    A place is a pair: a queue or a node above it ("": all queues), and a flavor.
    """

    def __init__(self, promises: Mapping[int, Promise], limit: int) -> None:
        """Start without blockers. `promises` are the promises of earlier passes."""
        self._promises, self._limit = promises, limit
        self._blockers: dict[tuple[str, str], Blocker] = {}
        self._counted: dict[int, Blocker] = {}

    def add(self, job_id: int, promise: Promise, places: Iterable[tuple[str, str]]) -> None:
        """Make the job the blocker of these places, so that the number of jobs that overtake it there is
        limited.

        A place that already has a blocker keeps that blocker.
        """
        blocker = Blocker(job_id, promise, promise.overtaken)
        for place in places:
            self._blockers.setdefault(place, blocker)

    def ahead(self, job_id: int, flavor: str, nodes: Iterable[str]) -> list[Blocker]:
        """Return the blockers that a job would overtake on a flavor, in the queues and parents `nodes`.

        If the job has a promised start on the flavor, it has already been counted as overtaking the blockers
        that never had a promised start, so these are left out. Blockers that have lost their promised start
        still count: otherwise, jobs of other queues could overtake them again and again.
        """
        if not self._blockers:
            return []
        found: list[Blocker] = []
        for node in nodes:
            blocker = self._blockers.get((node, flavor))
            if blocker is not None and blocker not in found:
                found.append(blocker)
        promise = self._promises.get(job_id)
        if promise is None or promise.flavor != flavor:
            return found
        return [each for each in found if each.promise.at < math.inf or each.promise.is_put_off]

    def count(self, blockers: Iterable[Blocker]) -> None:
        """Count that one more job has overtaken these blockers."""
        for blocker in blockers:
            blocker.overtaken += 1
            self._counted[blocker.job_id] = blocker

    def is_full(self, blockers: Iterable[Blocker]) -> bool:
        """Return whether one of these jobs has been overtaken as often as is allowed."""
        return any(each.overtaken >= self._limit for each in blockers)

    def is_shut(self, flavors: Iterable[str]) -> bool:
        """Return whether each flavor has a blocker of all queues that no further job may overtake."""
        first = [self._blockers.get(("", flavor)) for flavor in flavors]
        return all(each is not None and self.is_full([each]) for each in first)

    def counted(self, reserves: Sequence[Reserve]) -> list[Reserve]:
        """Return the reservations, with the new counts of the jobs that were overtaken in this pass."""
        return [
            replace(each, promise=replace(each.promise, overtaken=self._counted[each.job_id].overtaken))
            if each.job_id in self._counted
            else each
            for each in reserves
        ]


def without_promise(blockers: Iterable[Blocker]) -> list[Blocker]:
    """Return the blockers to which no start can be promised."""
    return [each for each in blockers if each.promise.at == math.inf]
