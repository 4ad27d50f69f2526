"""The board: the input of the planner, which is kept in memory."""

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from job_tracker.domain.job import Job, JobState
from job_tracker.scheduling.durations import Kind
from job_tracker.scheduling.experience import Experience, kind_of
from job_tracker.scheduling.gangs import gang_of
from job_tracker.scheduling.model import (
    DEFAULT_FLAVOR,
    Allocation,
    Flavor,
    Gang,
    Promise,
    Queue,
    Running,
    Snapshot,
    Usage,
)
from job_tracker.scheduling.preemption_view import PreemptionView
from job_tracker.scheduling.running import RunningGangs
from job_tracker.scheduling.shares import decay
from job_tracker.scheduling.tree import covering
from job_tracker.scheduling.waiting import WaitingGangs
from job_tracker.scheduling.waits import KEPT
from job_tracker.scheduling.work import WaitingWork

Pool = tuple[Sequence[Flavor], Mapping[str, Queue]]
"""The flavors, and the queues by name."""
Amounts = dict[str, dict[str, float]]
"""Amounts of resources, by flavor and resource."""


class Board:
    """The waiting and running gangs, the promises to waiting gangs, and the past usage of queues.

    The board follows the store: `read` updates the board from a stored job, and `remove` forgets a job that
    no longer waits or runs. The cost of a change does not depend on the number of jobs.
    """

    def __init__(
        self,
        pool: Callable[[], Pool],
        half_life: float,
        experience: Experience | None = None,
    ) -> None:
        """`pool` returns the flavors and queues.

        After `half_life` seconds, past usage of queues counts only half as much.
        """
        self._pool = pool
        self._half_life = half_life
        self.experience = experience or Experience()
        self.running = RunningGangs()
        self.promises: dict[int, Promise] = {}
        self.usage: dict[str, Usage] = {}
        self.preemption = PreemptionView()
        self.projects: dict[int, str] = {}
        """The projects of the waiting and running jobs."""
        self._gated: set[int] = set()
        self._declared: Mapping[str, Queue] = {}
        self._covered: Mapping[str, Queue] = {}
        self._since = 0.0
        """The time at which the board began to follow the store.

        The board has not seen the whole wait of jobs that were submitted earlier.
        """
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        self.waiting = WaitingGangs()
        self._work = WaitingWork()
        self._unknown: dict[Kind, set[int]] = {}
        """The waiting jobs of unknown duration, by kind."""
        self._kinds: dict[int, Kind] = {}
        """The kind of each job in `_unknown`."""
        self._new: deque[int] = deque(maxlen=KEPT)
        """The jobs that were submitted since the last pass: at most the last KEPT of them."""

    def clear(self, now: float) -> None:
        """Remove all gangs. Usage and promises stay."""
        self.advance(now)
        self._forget_waiting()
        self.running = RunningGangs()
        self._gated.clear()
        self.preemption.clear()
        self.projects.clear()
        self._since = now

    def advance(self, now: float) -> None:
        """Bring the usage of queues up to the time `now`.

        If a queue has no running gangs, its usage only decays. Such usage is updated once in a half-life, so
        that it is seldom written to the store.
        """
        held = self.running.held()
        for queue, usage in list(self.usage.items()):
            if queue in held or now - usage.at > self._half_life:
                self._advance(queue, now)

    def used(self) -> Mapping[str, Usage]:
        """Forget the usage of idle queues if it has decayed to almost nothing. Return all other usage."""
        held = self.running.held()
        for queue in [name for name, usage in self.usage.items() if name not in held and _is_nothing(usage)]:
            del self.usage[queue]
        return self.usage

    def shift(self, seconds: float) -> None:
        """Add `seconds`, the amount by which the clock was moved, to all times on the board."""
        self.usage = {queue: replace(usage, at=usage.at + seconds) for queue, usage in self.usage.items()}
        self.promises = {
            job_id: replace(promise, at=promise.at + seconds) for job_id, promise in self.promises.items()
        }
        self.running = RunningGangs(
            replace(running, started_at=running.started_at + seconds) for running in self.running.values()
        )
        self.preemption.shift(seconds)
        self.experience.waits.shift(seconds)
        self._since += seconds

    def read(self, job: Job, now: float) -> None:
        """Update the board from a stored job.

        The first read of a running job brings the usage of its queue up to the job's start, and counts the
        job from then on. So a new leader has to read jobs in the order of their starts: otherwise, it would
        lose usage.
        """
        known = self.preemption.stakes.get(job.id)
        self.preemption.read(job)
        self.projects[job.id] = sys.intern(job.spec.project)
        if known is not None and known.attempt < job.attempt:
            self._end(job.id, now)  # a replica may miss the end, and see only the next attempt
        if job.state is JobState.QUEUED:
            self._end(job.id, now)
            self._begin_waiting(job)
        elif job.state.is_live:
            if job.id not in self.running:
                self._stop_waiting(job.id)
                # If the clock was set back, the start may seem to be in the future.
                began = min(now, (job.admitted_at or job.submitted_at).timestamp())
                self._begin(Running(self._gang_of(job), job.allocation or self._unknown_place(), began))
            self.follow_gate(job)
        else:
            self.remove(job.id, now)

    def follow_gate(self, job: Job) -> bool:
        """Record whether a job is gated: it waits in the cluster's own queue, or was not launched yet.

        Return whether the job was gated at the previous call, and is not gated any longer.
        """
        waits = job.state is JobState.LAUNCHING and (job.is_gated or not job.was_launched)
        has_left = not waits and job.id in self._gated
        (self._gated.add if waits else self._gated.discard)(job.id)
        return has_left

    def remove(self, job_id: int, now: float) -> None:
        """Remove a job that no longer waits or runs."""
        self._stop_waiting(job_id)
        self.preemption.remove(job_id)
        self.projects.pop(job_id, None)
        self._end(job_id, now)

    def ended(self, job: Job) -> None:
        """Learn the run time of the job's last attempt, which has ended.

        With this run time, the unknown durations of some waiting jobs may become known.
        """
        self.experience.ended(job)
        for kind in [each for each in self._unknown if each.algorithm == kind_of(job.spec).algorithm]:
            expected = self.experience.runs.expected(kind)
            for job_id in self._unknown.pop(kind) if expected is not None else ():
                del self._kinds[job_id]
                if (gang := self.waiting.get(job_id)) is not None:
                    self._work.remove(gang)
                    self._add(replace(gang, expected=expected))

    def learn_waits(self, promises: Mapping[int, Promise], now: float) -> None:
        """After a pass, learn which jobs have begun to wait, and how long the started jobs have waited."""
        self.experience.learn_waits(self, promises, now)

    def waits(self, job_id: int) -> bool:
        """Return whether the job waits."""
        return self.waiting.get(job_id) is not None

    def runs(self, job_id: int) -> bool:
        """Return whether the job runs."""
        return job_id in self.running

    def ahead_of_new(self, now: float) -> Mapping[int, float]:
        """Return, by job, the seconds of work ahead of each waiting job that was submitted since the last
        call.
        """
        new = [gang for job_id in self._new if (gang := self.waiting.get(job_id)) is not None]
        self._new.clear()
        return self._work.ahead_of_last(new, self.running.values(), self._pool()[0], now) if new else {}

    def knows(self, job_id: int, state: JobState) -> bool:
        """Return whether the board already agrees with this state of the job.

        A queued job waits on the board, a live job runs on it, and any other job is not on it.
        """
        if state is JobState.QUEUED:
            return self.waiting.get(job_id) is not None
        is_running = job_id in self.running
        return is_running if state.is_live else not is_running and self.waiting.get(job_id) is None

    def snapshot(self, *, is_open: bool) -> Snapshot:
        """Return the snapshot for the planner. `is_open` says whether jobs may start now.

        The snapshot shares the collections of the board, so it is valid until the next change of the board.
        """
        flavors, queues = self._pool()
        return Snapshot(
            flavors=flavors,
            queues=self._with_removed(queues),
            waiting=self.waiting,
            running=self.running,
            usage=self.usage,
            promises=self.promises,
            stakes=self.preemption.stakes,
            claims=self.preemption.claims(self.waiting),
            going_on=self.preemption.going_on(self.waiting),
            preempted=self.preemption.preempted,
            gated=self._gated,
            is_open=is_open,
        )

    def _with_removed(self, queues: Mapping[str, Queue]) -> Mapping[str, Queue]:
        """Return the declared queues, and removed queues that still have jobs.

        The result is the same object until these queues change, so that the planner can reuse what it derived
        from them.
        """
        covered = covering(queues, {*self.waiting.queues(), *self.running.held()})
        if queues is not self._declared or covered.keys() != self._covered.keys():
            self._declared, self._covered = queues, covered
        return self._covered

    def _gang_of(self, job: Job) -> Gang:
        return gang_of(job.id, job.spec, self.experience.expected(job.spec))

    def _unknown_place(self) -> Allocation:
        """Return the allocation to assume for a running job without a stored allocation.

        Such a job was launched by an earlier version, or after the backup from which the store was restored.
        """
        names = [flavor.name for flavor in self._pool()[0]]
        return Allocation() if DEFAULT_FLAVOR in names or not names else Allocation(flavor=names[0])

    def _begin_waiting(self, job: Job) -> None:
        gang, known = self._gang_of(job), self.waiting.get(job.id)
        if known is not None:
            self._work.remove(known)
        elif not job.attempt and job.submitted_at.timestamp() >= self._since:
            self._new.append(job.id)
        if gang.expected is None:
            kind = self._kinds[job.id] = kind_of(job.spec)
            self._unknown.setdefault(kind, set()).add(job.id)
        self._add(gang)

    def _add(self, gang: Gang) -> None:
        self.waiting.add(gang)
        self._work.add(gang)

    def _stop_waiting(self, job_id: int) -> None:
        self.promises.pop(job_id, None)
        if (gang := self.waiting.get(job_id)) is None:
            return
        self.waiting.remove(job_id)
        self._work.remove(gang)
        if (kind := self._kinds.pop(job_id, None)) is not None:
            self._unknown[kind].discard(job_id)
            if not self._unknown[kind]:
                del self._unknown[kind]

    def _begin(self, running: Running) -> None:
        known = self.usage.setdefault(running.gang.queue, Usage(running.started_at, {}))
        self._advance(running.gang.queue, max(known.at, running.started_at))
        self.running.add(running)

    def _end(self, job_id: int, now: float) -> None:
        if (running := self.running.get(job_id)) is not None:
            self._advance(running.gang.queue, now)
            self.running.remove(job_id)
            self._gated.discard(job_id)

    def _advance(self, queue: str, now: float) -> None:
        """Bring the usage of a queue up to the time `now`."""
        if (known := self.usage.get(queue)) is not None:
            held = self.running.held().get(queue, {})
            rates = {flavor: each.amounts for flavor, each in held.items()}
            self.usage[queue] = advanced(known, rates, now, self._half_life)


def _is_nothing(usage: Usage) -> bool:
    return all(amount < 1 for of_flavor in usage.amounts.values() for amount in of_flavor.values())


def advanced(usage: Usage, rates: Mapping[str, Mapping[str, float]], now: float, half_life: float) -> Usage:
    """Return the usage at the time `now`: the decayed `usage`, plus the use at `rates` since `usage.at`."""
    left, added = decay(now - usage.at, half_life)
    amounts: Amounts = {
        flavor: {resource: amount * left for resource, amount in of_flavor.items()}
        for flavor, of_flavor in usage.amounts.items()
    }
    for flavor, of_flavor in rates.items():
        own = amounts.setdefault(flavor, {})
        for resource, rate in of_flavor.items():
            own[resource] = own.get(resource, 0.0) + rate * added
    return Usage(now, amounts)
