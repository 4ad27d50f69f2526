"""Replays jobs through a policy, from event to event. Nothing waits, and no clock is read."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol, TypeAlias

from job_tracker.scheduling.model import (
    DEFAULT_FLAVOR,
    INSTANCES,
    Allocation,
    Expected,
    Flavor,
    Gang,
    Part,
    Plan,
    Promise,
    Queue,
    Running,
    Snapshot,
    Usage,
)
from job_tracker.scheduling.options import HALF_LIFE
from job_tracker.scheduling.simulation.trace import TraceJob
from job_tracker.scheduling.waiting import WaitingGangs

Policy: TypeAlias = Callable[[Snapshot, float], Plan]

BEGIN: Final = 1_000_000_000.0
"""The Unix time at which simulations begin, in seconds."""
DAY: Final = 86_400.0


class Durations(Protocol):
    """Says how long jobs are expected to run."""

    def expected(self, job: TraceJob) -> Expected | None:
        """Return what is expected at the submission of a job; None: unknown."""
        ...

    def ended(self, job: TraceJob) -> None:
        """Learn from a job that has ended."""
        ...


class ExactDurations:
    """Knows the run time of each job."""

    def expected(self, job: TraceJob) -> Expected | None:
        """Return the run time."""
        return Expected(median=job.run, high=job.run)

    def ended(self, job: TraceJob) -> None:
        """Learn nothing: all is known."""


class UnknownDurations(ExactDurations):
    """Knows nothing."""

    def expected(self, job: TraceJob) -> Expected | None:  # noqa: ARG002  # the protocol's signature
        """Return None."""
        return None


@dataclass(slots=True)
class Record:
    """What became of a job. Times are seconds from the beginning of the simulation."""

    job: TraceJob
    started_at: float | None = None
    refused: str = ""
    first_promise: float | None = None
    """The start that the first reservation of the job promised."""
    moves: list[str] = field(default_factory=list)
    """Why its reservation was moved later, each time."""

    @property
    def waited(self) -> float:
        """How long it waited, in seconds. Raises AssertionError if it never started."""
        assert self.started_at is not None
        return self.started_at - self.job.submitted_at

    @property
    def ended_at(self) -> float:
        """When it ended. Raises AssertionError if it never started."""
        assert self.started_at is not None
        return self.started_at + self.job.run


@dataclass(frozen=True)
class Cluster:
    """The machines and queues of a simulation."""

    capacity: Mapping[str, int]
    """Instances by flavor."""
    queues: Mapping[str, Queue] = field(default_factory=dict)
    half_life: float = HALF_LIFE.total_seconds()
    """In which time a queue's usage decays to half, in seconds."""

    @classmethod
    def of(cls, instances: int) -> "Cluster":
        """Return a cluster with one flavor."""
        return cls({DEFAULT_FLAVOR: instances})

    @property
    def instances(self) -> int:
        """All instances."""
        return sum(self.capacity.values())

    @property
    def flavors(self) -> Sequence[Flavor]:
        """The flavors as the policy sees them."""
        return tuple(
            Flavor(name=name, capacity={INSTANCES: count}) for name, count in self.capacity.items() if count
        )


class Watcher(Protocol):
    """Sees each pass, for example to judge estimates."""

    def passed(self, snapshot: Snapshot, now: float, submitted: Sequence[int], plan: Plan) -> None:
        """See a plan, the snapshot after its decisions, and which jobs were submitted since the last plan."""
        ...


class PolicyError(Exception):
    """A policy has broken a rule: a job was started twice, or on more than there is."""


def replay(
    jobs: Iterable[TraceJob],
    policy: Policy,
    cluster: Cluster,
    durations: Durations | None = None,
    watcher: Watcher | None = None,
) -> list[Record]:
    """Return what becomes of each job, in the order of submissions. Raises PolicyError.

    Jobs that the policy never starts have no start.
    """
    return _Replay(jobs, policy, cluster, durations or ExactDurations(), watcher).run()


class _Replay:
    def __init__(
        self,
        jobs: Iterable[TraceJob],
        policy: Policy,
        cluster: Cluster,
        durations: Durations,
        watcher: Watcher | None,
    ) -> None:
        ordered = sorted(jobs, key=lambda job: job.submitted_at)
        self._records = [Record(job) for job in ordered]
        self._policy, self._durations, self._watcher = policy, durations, watcher
        self._flavors = cluster.flavors
        self._free = dict(cluster.capacity)
        names = {job.queue for job in ordered}
        self._queues = {name: Queue(name=name) for name in sorted(names)} | dict(cluster.queues)
        self._half_life = cluster.half_life
        self._waiting = WaitingGangs()
        self._running: dict[int, Running] = {}
        self._promises: dict[int, Promise] = {}
        self._usage: dict[str, Usage] = {}
        self._ends: list[tuple[float, int]] = []
        self._shares = sorted(names) if len(names) > 1 else []
        """The queues whose usage matters: a single one shares with none."""
        self._counted_at = BEGIN
        self._coming = 0
        """The place of the next job to submit; its id is one more."""

    def run(self) -> list[Record]:
        wake: float | None = None
        while (now := self._next(wake)) is not None:
            self._count_usage(now)
            self._end(now)
            submitted = self._submit(now)
            plan = self._pass(now, submitted)
            wake = plan.next_at if plan.next_at is not None and plan.next_at > now else None
        return self._records

    def _next(self, wake: float | None) -> float | None:
        """Return the time of the next event; None: nothing can happen any more."""
        times = [] if not self._ends else [self._ends[0][0]]
        if self._coming < len(self._records):
            times.append(BEGIN + self._records[self._coming].job.submitted_at)
        if wake is not None and len(self._waiting):
            times.append(wake)
        return min(times, default=None)

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, job_id = heappop(self._ends)
            ended = self._running.pop(job_id)
            self._free[ended.allocation.flavor] += _size(ended.gang)
            self._durations.ended(self._records[job_id - 1].job)

    def _submit(self, now: float) -> list[int]:
        submitted = []
        while self._coming < len(self._records):
            job = self._records[self._coming].job
            if BEGIN + job.submitted_at > now:
                break
            self._coming += 1
            self._waiting.add(
                Gang(
                    job_id=self._coming,
                    queue=job.queue,
                    priority=job.priority,
                    parts=(Part(job.instances, {INSTANCES: 1}),),
                    expected=self._durations.expected(job),
                )
            )
            submitted.append(self._coming)
        return submitted

    def _pass(self, now: float, submitted: Sequence[int]) -> Plan:
        plan = self._policy(self._snapshot(), now)
        for refused in plan.refused:
            self._waiting.remove(refused.job_id)
            self._records[refused.job_id - 1].refused = refused.diagnosis.summary
        for admitted in plan.admitted:
            self._start(admitted.job_id, admitted.allocation, now)
        self._promises = {reserve.job_id: reserve.promise for reserve in plan.reserved}
        for reserve in plan.reserved:
            record = self._records[reserve.job_id - 1]
            if record.first_promise is None:
                record.first_promise = reserve.promise.at - BEGIN
            if reserve.moved_because:
                record.moves.append(reserve.moved_because)
        if self._watcher is not None:
            self._watcher.passed(self._snapshot(), now, submitted, plan)
        return plan

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            flavors=self._flavors,
            queues=self._queues,
            waiting=self._waiting,
            running=self._running,
            usage=self._usage,
            promises=self._promises,
        )

    def _start(self, job_id: int, allocation: Allocation, now: float) -> None:
        record = self._records[job_id - 1]
        gang = self._waiting.get(job_id)
        if gang is None:
            raise PolicyError(f"job {job_id} is started, but it does not wait")
        self._waiting.remove(job_id)
        free = self._free.get(allocation.flavor, 0) - _size(gang)
        if free < 0:
            raise PolicyError(
                f"job {job_id} is started on {_size(gang)} instances of flavor {allocation.flavor!r}; "
                f"{free + _size(gang)} are free"
            )
        self._free[allocation.flavor] = free
        self._running[job_id] = Running(gang, allocation, now)
        record.started_at = now - BEGIN
        heappush(self._ends, (now + record.job.run, job_id))

    def _count_usage(self, now: float) -> None:
        """Bring the decayed usage of the queues up to now. Nothing has started or ended since."""
        if not self._shares:
            return
        since, self._counted_at = self._counted_at, now
        if now <= since:
            return
        amounts: dict[str, dict[str, float]] = {name: {} for name in self._shares}
        for each in self._running.values():
            of_queue = amounts[each.gang.queue]
            flavor = each.allocation.flavor
            of_queue[flavor] = of_queue.get(flavor, 0.0) + _size(each.gang)
        kept = 0.5 ** ((now - since) / self._half_life)
        # The integral of what decays while it is used at a constant rate.
        gained = (1 - kept) * self._half_life / math.log(2)
        for name, of_queue in amounts.items():
            before = self._usage[name].amounts if name in self._usage else {}
            flavors = {*before, *of_queue}
            self._usage[name] = Usage(
                now,
                {
                    flavor: {
                        INSTANCES: before.get(flavor, {}).get(INSTANCES, 0.0) * kept
                        + of_queue.get(flavor, 0.0) * gained
                    }
                    for flavor in flavors
                },
            )


def _size(gang: Gang) -> int:
    return sum(part.count for part in gang.parts)
