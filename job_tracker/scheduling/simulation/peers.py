"""The policies of other schedulers, for comparisons.

Except for `newest`, the policies count only instances, treat all queues as one, and assume that a job of
unknown duration never ends.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from heapq import merge
from typing import Final

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.scheduling.model import (
    INSTANCES,
    Admit,
    Allocation,
    Gang,
    Plan,
    PreemptionReason,
    Promise,
    Reason,
    Refuse,
    Reserve,
    Snapshot,
)
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.passes import Pass
from job_tracker.scheduling.preemption import preemptions
from job_tracker.scheduling.victims import Victim

RESERVATIONS: Final = 100


class FreeOverTime:
    """The free instances of one flavor, from now on."""

    def __init__(self, now: float, free: int) -> None:
        self._times, self._free = [now], [free]

    @property
    def now(self) -> int:
        """The number of instances that are free now."""
        return self._free[0]

    def take(self, start: float, end: float, size: int) -> None:
        """Subtract `size` instances from the free ones, from `start` to `end`."""
        first, last = self._step(start), self._step(end)
        for place in range(first, last):
            self._free[place] -= size

    def earliest(self, size: int, duration: float) -> float:
        """Return the earliest time from which `size` instances are free for `duration` seconds; infinity:
        never.
        """
        times, free = self._times, self._free
        start: float | None = None
        for time, here in zip(times, free, strict=True):
            if start is not None and time >= start + duration:
                return start
            if here < size:
                start = None
            elif start is None:
                start = time
        return math.inf if start is None else start

    def _step(self, time: float) -> int:
        """Return the index of the step that begins at this time; insert the step if there is none."""
        if time == math.inf:
            return len(self._times)
        place = bisect_left(self._times, time)
        if place == len(self._times) or self._times[place] != time:
            self._times.insert(place, time)
            self._free.insert(place, self._free[place - 1])
        return place


def fifo(snapshot: Snapshot, now: float) -> Plan:
    """Return the plan of strict first in, first out.

    No job overtakes another job of the same or a higher priority.
    """
    return _planned(snapshot, now, reservations=0)


def easy(snapshot: Snapshot, now: float) -> Plan:
    """Return the plan of EASY backfill (Lifka, 1995): no job may delay the reservation of the first
    waiting job.
    """
    return _planned(snapshot, now, reservations=1)


def conservative(snapshot: Snapshot, now: float) -> Plan:
    """Return the plan of conservative backfill: no job may delay the reservations of the first 100 waiting
    jobs.
    """
    return _planned(snapshot, now, reservations=RESERVATIONS)


def newest(snapshot: Snapshot, now: float, options: PlannerOptions | None = None) -> Plan:
    """Return the planner's plan, but with victims sorted as Kueue sorts them.

    Victims of other queues come first. Otherwise, lower priorities come first, and among equal priorities the
    newest victims. As in Kueue, victims that are not needed after all are spared, beginning with the last
    one. Victims are stopped however much they lose. The planner's resizes of elastic jobs are left out.
    """
    decided = Pass(snapshot, now, options or PlannerOptions()).run()
    stopped = preemptions(snapshot, decided, now, orders=(_newest_first,), patience=math.inf)
    return replace(decided, preempted=stopped)


def _newest_first(victim: Victim) -> tuple[float, ...]:
    return (
        victim.why is not PreemptionReason.RECLAIM,
        victim.run.gang.priority,
        -victim.run.started_at,
        -victim.run.gang.job_id,
    )


def _planned(snapshot: Snapshot, now: float, reservations: int) -> Plan:
    free = _free(snapshot, now)
    admitted: list[Admit] = []
    reserved: list[Reserve] = []
    refused: list[Refuse] = []
    most = max(flavor.capacity[INSTANCES] for flavor in snapshot.flavors)
    for gang in _in_order(snapshot):
        if not any(each.now for each in free.values()):
            break
        size, duration = size_of(gang), duration_of(gang)
        if size > most:
            refused.append(Refuse(gang.job_id, _too_large(size, most)))
            continue
        behind = len(reserved) >= reservations
        if behind and reservations and all(each.now < size for each in free.values()):
            continue
        start, flavor = min((each.earliest(size, duration), name) for name, each in free.items())
        if start <= now:
            free[flavor].take(now, now + duration, size)
            admitted.append(Admit(gang.job_id, Allocation(flavor=flavor)))
        elif not reservations:
            break
        elif not behind and start < math.inf:
            free[flavor].take(start, start + duration, size)
            reserved.append(Reserve(gang.job_id, Promise(start, flavor), (Reason.CAPACITY,)))
    return Plan(admitted=tuple(admitted), refused=tuple(refused), reserved=tuple(reserved))


def size_of(gang: Gang) -> int:
    """Return the number of instances of a gang."""
    return sum(part.count for part in gang.parts)


def duration_of(gang: Gang) -> float:
    """Return how many seconds a gang is expected to run; infinity if this is unknown."""
    return math.inf if gang.expected is None else gang.expected.median


def _free(snapshot: Snapshot, now: float) -> dict[str, FreeOverTime]:
    used = dict.fromkeys((flavor.name for flavor in snapshot.flavors), 0)
    for each in snapshot.running.values():
        used[each.allocation.flavor] += size_of(each.gang)
    free = {
        flavor.name: FreeOverTime(now, flavor.capacity[INSTANCES] - used[flavor.name])
        for flavor in snapshot.flavors
    }
    for each in snapshot.running.values():
        # A gang that has run longer than expected is assumed to end 1 s from now.
        end = max(now + 1, each.started_at + duration_of(each.gang))
        if end < math.inf:
            free[each.allocation.flavor].take(end, math.inf, -size_of(each.gang))
    return free


def _too_large(size: int, most: int) -> Diagnosis:
    return Diagnosis(
        category=Category.EXCEEDS_CAPACITY,
        summary=f"The job needs {size} instances, but the largest flavor has {most}.",
        resolution="Use fewer instances, or add capacity.",
    )


def _in_order(snapshot: Snapshot) -> Iterator[Gang]:
    lists = (snapshot.waiting.in_order(queue) for queue in snapshot.waiting.queues())
    return merge(*lists, key=lambda gang: (-gang.priority, gang.job_id))
