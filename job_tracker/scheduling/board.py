"""The board: what the planner sees, kept in memory by the leader."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from job_tracker.domain.job import Job, JobSpec, JobState
from job_tracker.scheduling.gangs import gang_of
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Promise,
    Queue,
    Running,
    Snapshot,
    Usage,
)
from job_tracker.scheduling.tree import covering
from job_tracker.scheduling.waiting import WaitingGangs

Pool = tuple[Sequence[Flavor], Mapping[str, Queue]]
"""The flavors, and the queues by name."""
Amounts = dict[str, dict[str, float]]
"""By flavor and resource."""


def expected_as_said(spec: JobSpec) -> Expected | None:
    """Return the duration that the caller expects of an attempt, or the longest that it may run."""
    said = spec.expected or spec.deadlines.run
    return Expected(median=said.total_seconds(), high=said.total_seconds()) if said else None


class Board:
    """The waiting and running gangs, the promises to waiting ones, and what queues have used.

    It follows the store: `read` takes in a job as it is stored, and `remove` one that neither waits nor runs.
    The cost of a change does not depend on the number of jobs.
    """

    def __init__(
        self,
        pool: Callable[[], Pool],
        half_life: float,
        expected_of: Callable[[JobSpec], Expected | None] = expected_as_said,
    ) -> None:
        """`half_life` of what queues have used, in seconds."""
        self._pool = pool
        self._half_life = half_life
        self._expected_of = expected_of
        self.waiting = WaitingGangs()
        self.running: dict[int, Running] = {}
        self.promises: dict[int, Promise] = {}
        self.usage: dict[str, Usage] = {}
        self._rates: dict[str, Amounts] = {}
        """What the running gangs of a queue use at present."""
        self._declared: Mapping[str, Queue] = {}
        self._covered: Mapping[str, Queue] = {}

    def clear(self, now: float) -> None:
        """Remove all gangs. Usage and promises stay."""
        for queue in self._rates:
            self._advance(queue, now)
        self.waiting = WaitingGangs()
        self.running.clear()
        self._rates.clear()

    def shift(self, seconds: float) -> None:
        """Move all times by this much, since the clock was set by it."""
        self.usage = {queue: replace(usage, at=usage.at + seconds) for queue, usage in self.usage.items()}
        self.promises = {
            job_id: replace(promise, at=promise.at + seconds) for job_id, promise in self.promises.items()
        }
        for job_id, running in self.running.items():
            self.running[job_id] = replace(running, started_at=running.started_at + seconds)

    def read(self, job: Job, now: float) -> None:
        """Take in a job as it is stored.

        What it has used since its start counts, too, as far as it does not yet. So after a change of leaders,
        jobs have to be read in the order of their starts.
        """
        if job.state is JobState.QUEUED:
            self._end(job.id, now)
            self.waiting.add(self._gang_of(job))
        elif job.state.is_live:
            if job.id not in self.running:
                self.waiting.remove(job.id)
                self.promises.pop(job.id, None)
                # If the clock was set back, the start may seem to be in the future.
                began = min(now, (job.admitted_at or job.submitted_at).timestamp())
                self._begin(Running(self._gang_of(job), job.allocation or Allocation(), began))
        else:
            self.remove(job.id, now)

    def remove(self, job_id: int, now: float) -> None:
        """Remove a job that neither waits nor runs."""
        self.waiting.remove(job_id)
        self.promises.pop(job_id, None)
        self._end(job_id, now)

    def knows(self, job_id: int, state: JobState) -> bool:
        """Return whether the job is on the board as it should be in this state."""
        if state is JobState.QUEUED:
            return self.waiting.get(job_id) is not None
        is_running = job_id in self.running
        return is_running if state.is_live else not is_running and self.waiting.get(job_id) is None

    def snapshot(self, now: float, *, is_open: bool) -> Snapshot:
        """Return the snapshot. It shares the collections of the board, so it is valid until the next
        change."""
        for queue in self._rates:
            self._advance(queue, now)
        flavors, queues = self._pool()
        return Snapshot(
            flavors=flavors,
            queues=self._with_removed(queues),
            waiting=self.waiting,
            running=self.running,
            usage=self.usage,
            promises=self.promises,
            is_open=is_open,
        )

    def _with_removed(self, queues: Mapping[str, Queue]) -> Mapping[str, Queue]:
        """Return the queues, and those that are gone, for example from a file, but have jobs.

        It is the same object until something changes, for which the planner looks.
        """
        covered = covering(queues, {*self.waiting.queues(), *self._rates})
        if queues is not self._declared or covered.keys() != self._covered.keys():
            self._declared, self._covered = queues, covered
        return self._covered

    def _gang_of(self, job: Job) -> Gang:
        return gang_of(job.id, job.spec, self._expected_of(job.spec))

    def _begin(self, running: Running) -> None:
        known = self.usage.setdefault(running.gang.queue, Usage(running.started_at, {}))
        self._advance(running.gang.queue, max(known.at, running.started_at))
        self.running[running.gang.job_id] = running
        self._count(running, 1)

    def _end(self, job_id: int, now: float) -> None:
        running = self.running.pop(job_id, None)
        if running is not None:
            self._advance(running.gang.queue, now)
            self._count(running, -1)

    def _count(self, running: Running, sign: int) -> None:
        queue = running.gang.queue
        of_flavor = self._rates.setdefault(queue, {}).setdefault(running.allocation.flavor, {})
        for resource, amount in used_by(running).items():
            of_flavor[resource] = of_flavor.get(resource, 0) + sign * amount
        if not any(chain.from_iterable(each.values() for each in self._rates[queue].values())):
            del self._rates[queue]

    def _advance(self, queue: str, now: float) -> None:
        """Bring the usage of a queue to this time."""
        if (known := self.usage.get(queue)) is not None:
            self.usage[queue] = advanced(known, self._rates.get(queue, {}), now, self._half_life)


def used_by(running: Running) -> dict[str, int]:
    """Return what a running gang uses of each resource."""
    used: dict[str, int] = {}
    for index, part in enumerate(running.gang.parts):
        count = running.allocation.trainers or part.count if index == 0 else part.count
        for resource, amount in part.each.items():
            used[resource] = used.get(resource, 0) + count * amount
    return used


def advanced(usage: Usage, rates: Mapping[str, Mapping[str, float]], now: float, half_life: float) -> Usage:
    """Return the usage at a later time: it has decayed, and what was used meanwhile is added.

    If the clock was set back, nothing decays, and nothing is added.
    """
    seconds = max(0.0, now - usage.at)
    left = 0.5 ** (seconds / half_life)
    added = (1 - left) * half_life / math.log(2)  # the integral of what decays meanwhile
    amounts: Amounts = {
        flavor: {resource: amount * left for resource, amount in of_flavor.items()}
        for flavor, of_flavor in usage.amounts.items()
    }
    for flavor, of_flavor in rates.items():
        own = amounts.setdefault(flavor, {})
        for resource, rate in of_flavor.items():
            own[resource] = own.get(resource, 0.0) + rate * added
    return Usage(now, amounts)
