"""The work ahead of a waiting job, divided by the capacity.

This work is the sum of instances times remaining run time, over all running jobs and the waiting jobs that
go first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from job_tracker.scheduling.model import INSTANCES, Expected, Flavor, Gang, Running, Snapshot

ASSUMED: Final = Expected(median=36_000.0, high=259_200.0)
"""The assumed run time of jobs whose run time is unknown. Learned waits correct errors of this assumption."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The work ahead of a waiting job."""

    seconds: float
    """The seconds for which the work keeps all machines busy."""
    is_learned: bool
    """Whether some of the work rests on learned run times."""
    is_assumed: bool
    """Whether some of the work rests on an assumed run time, since the real one is unknown."""


def ahead(snapshot: Snapshot, now: float, job_ids: Iterable[int]) -> dict[int, Ahead]:
    """Return the work ahead of each of these waiting jobs, by job; empty if no flavor limits instances."""
    capacity = _capacity(snapshot.flavors)
    wanted = {job_id for job_id in job_ids if snapshot.waiting.get(job_id) is not None}
    if not wanted or not capacity:
        return {}
    done = sum(left(each, now) for each in snapshot.running.values())
    learned = any(_is_learned(each.gang) for each in snapshot.running.values())
    assumed = any(each.gang.expected is None for each in snapshot.running.values())
    gangs = (gang for queue in snapshot.waiting.queues() for gang in snapshot.waiting.in_order(queue))
    found = {}
    for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.job_id)):
        if gang.job_id in wanted:
            found[gang.job_id] = Ahead(done / capacity, learned, assumed)
        done += work(gang)
        learned, assumed = learned or _is_learned(gang), assumed or gang.expected is None
    return found


def size(gang: Gang) -> int:
    """Return the number of instances of a gang."""
    return sum(part.count for part in gang.parts)


def work(gang: Gang) -> float:
    """Return the expected work of a gang, in instance-seconds."""
    return size(gang) * (gang.expected or ASSUMED).median


def left(running: Running, now: float) -> float:
    """Return the remaining work of a running job, in instance-seconds.

    At least half of the time that the job has run so far is assumed to be left.
    """
    passed = max(0.0, now - running.started_at)
    median = (running.gang.expected or ASSUMED).median
    return size(running.gang) * max(median - passed, passed / 2)


class WaitingWork:
    """The work of the waiting gangs by priority, which is updated with each change.

    So the cost of finding the work ahead of new jobs does not grow with the length of the queue.
    """

    def __init__(self) -> None:
        self._work: dict[int, float] = {}
        self._gangs: dict[int, int] = {}

    def add(self, gang: Gang) -> None:
        """Add the work of a waiting gang."""
        self._work[gang.priority] = self._work.get(gang.priority, 0.0) + work(gang)
        self._gangs[gang.priority] = self._gangs.get(gang.priority, 0) + 1

    def remove(self, gang: Gang) -> None:
        """Subtract the work of a gang that no longer waits."""
        self._gangs[gang.priority] -= 1
        self._work[gang.priority] -= work(gang)
        if not self._gangs[gang.priority]:
            del self._gangs[gang.priority], self._work[gang.priority]

    def ahead_of_last(
        self, gangs: Iterable[Gang], running: Iterable[Running], flavors: Iterable[Flavor], now: float
    ) -> dict[int, float]:
        """Return, by job, the seconds of work ahead of these gangs.

        Among the waiting gangs of each priority, these gangs must be the last ones.
        """
        capacity = _capacity(flavors)
        if not capacity:
            return {}
        busy = sum(left(each, now) for each in running)
        behind: dict[int, float] = {}
        found = {}
        for gang in sorted(gangs, key=lambda gang: -gang.job_id):
            behind[gang.priority] = behind.get(gang.priority, 0.0) + work(gang)
            before = sum(done for priority, done in self._work.items() if priority >= gang.priority)
            found[gang.job_id] = max(0.0, busy + before - behind[gang.priority]) / capacity
        return dict(reversed(found.items()))


def _capacity(flavors: Iterable[Flavor]) -> int:
    return sum(flavor.capacity.get(INSTANCES, 0) for flavor in flavors)


def _is_learned(gang: Gang) -> bool:
    return gang.expected is not None and gang.expected.is_learned
