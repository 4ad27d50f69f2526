"""The board: what the planner sees, kept in memory by the leader."""

from collections.abc import Callable, Mapping, Sequence

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
from job_tracker.scheduling.running import Held, RunningGangs
from job_tracker.scheduling.shares import decay
from job_tracker.scheduling.waiting import WaitingGangs

Pool = tuple[Sequence[Flavor], Mapping[str, Queue]]
"""The flavors, and the queues by name."""


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
        self.running = RunningGangs()
        self.promises: dict[int, Promise] = {}
        self.usage: dict[str, Usage] = {}
        self._extended: tuple[Mapping[str, Queue], Mapping[str, Queue]] = {}, {}
        """The last queues, and the same with those that are missing. What depends on the tree is kept by it."""

    def clear(self, now: float) -> None:
        """Remove all gangs. Usage and promises stay."""
        self.advance(now)
        self.waiting = WaitingGangs()
        self.running = RunningGangs()

    def advance(self, now: float) -> None:
        """Bring the usage of all queues to this time."""
        for queue in self.running.held():
            self._advance(queue, now)

    def read(self, job: Job, now: float) -> None:
        """Take in a job as it is stored."""
        if job.state is JobState.QUEUED:
            self._end(job.id, now)
            self.waiting.add(self._gang_of(job))
        elif job.state.is_live:
            if job.id not in self.running:
                self.waiting.remove(job.id)
                self.promises.pop(job.id, None)
                began = job.admitted_at or job.submitted_at
                allocation = job.allocation or Allocation()
                self._begin(Running(self._gang_of(job), allocation, began.timestamp()), now)
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
        flavors, queues = self._pool()
        if missing := [name for name in self.waiting.queues() if name not in queues]:
            # They were removed while jobs waited in them, for example in a file.
            before, extended = self._extended
            if before is not queues or any(name not in extended for name in missing):
                extended = {**queues, **{name: Queue(name=name) for name in missing}}
                self._extended = queues, extended
            queues = extended
        return Snapshot(
            flavors=flavors,
            queues=queues,
            waiting=self.waiting,
            running=self.running,
            usage=self.usage,
            promises=self.promises,
            is_open=is_open,
        )

    def _gang_of(self, job: Job) -> Gang:
        return gang_of(job.id, job.spec, self._expected_of(job.spec))

    def _begin(self, running: Running, now: float) -> None:
        self._advance(running.gang.queue, now)
        self.usage.setdefault(running.gang.queue, Usage(now, {}))
        self.running.add(running)

    def _end(self, job_id: int, now: float) -> None:
        if (running := self.running.get(job_id)) is not None:
            self._advance(running.gang.queue, now)
            self.running.remove(job_id)

    def _advance(self, queue: str, now: float) -> None:
        """Bring the usage of a queue to this time."""
        if (known := self.usage.get(queue)) is not None:
            self.usage[queue] = advanced(known, self.running.held().get(queue, {}), now, self._half_life)


def advanced(usage: Usage, held: Mapping[str, Held], now: float, half_life: float) -> Usage:
    """Return the usage at a later time: it has decayed, and what was held meanwhile is added."""
    left, added = decay(now - usage.at, half_life)
    amounts: dict[str, dict[str, float]] = {
        flavor: {resource: amount * left for resource, amount in of_flavor.items()}
        for flavor, of_flavor in usage.amounts.items()
    }
    for flavor, each in held.items():
        own = amounts.setdefault(flavor, {})
        for resource, rate in each.amounts.items():
            own[resource] = own.get(resource, 0.0) + rate * added
    return Usage(now, amounts)
