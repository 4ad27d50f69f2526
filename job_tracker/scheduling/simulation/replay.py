"""Replays jobs through a policy, from event to event. Nothing waits, and no clock is read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final, Protocol, TypeAlias

from job_tracker.scheduling.board import advanced
from job_tracker.scheduling.model import (
    INSTANCES,
    Allocation,
    Expected,
    Gang,
    Plan,
    Promise,
    Queue,
    Running,
    Snapshot,
    Usage,
    Waiting,
)
from job_tracker.scheduling.running import RunningGangs, used_by
from job_tracker.scheduling.simulation.cluster import BEGIN, Cluster
from job_tracker.scheduling.simulation.trace import Begun, TraceJob
from job_tracker.scheduling.waiting import WaitingGangs

Policy: TypeAlias = Callable[[Snapshot, float], Plan]

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


class SaidDurations(ExactDurations):
    """Knows what was said of each job."""

    def expected(self, job: TraceJob) -> Expected | None:
        """Return what was said."""
        return job.said


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
    held: Mapping[str, int] = field(default_factory=dict)
    """What it had of each resource while it ran."""
    refused: str = ""
    first_promise: float | None = None
    """The start that the first reservation of the job promised."""
    moves: list[str] = field(default_factory=list)
    """Why its reservation was moved later, each time."""

    @property
    def has_waited(self) -> bool:
        """Return whether it started in the simulation, and not before."""
        return self.started_at is not None and self.job.begun is None

    @property
    def uses(self) -> Mapping[str, int]:
        """What it has of each resource while it runs."""
        return self.held or {INSTANCES: self.job.instances}

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


class Watcher(Protocol):
    """Sees each pass, for example to judge estimates."""

    def passed(self, snapshot: Snapshot, now: float, submitted: Sequence[int], plan: Plan) -> None:
        """See a plan, the snapshot after its decisions, and which jobs were submitted since the last plan."""
        ...


More: TypeAlias = Callable[[float, Waiting], Iterable[TraceJob]]
"""Gives the jobs that come at a time, in seconds from the beginning. It sees the jobs that wait."""


class PolicyError(Exception):
    """A policy has broken a rule: a job was started twice, or on more than there is."""


def replay(
    jobs: Iterable[TraceJob],
    policy: Policy,
    cluster: Cluster,
    durations: Durations | None = None,
    watcher: Watcher | None = None,
    more: More | None = None,
) -> list[Record]:
    """Return what becomes of each job, in the order of submissions. Raises PolicyError.

    Jobs that the policy never starts have no start. With `more`, further jobs come after those of `jobs`,
    while some run.
    """
    return _Replay(jobs, policy, cluster, durations or ExactDurations(), watcher, more).run()


class _Replay:
    def __init__(
        self,
        jobs: Iterable[TraceJob],
        policy: Policy,
        cluster: Cluster,
        durations: Durations,
        watcher: Watcher | None,
        more: More | None,
    ) -> None:
        ordered = sorted(jobs, key=lambda job: job.submitted_at)
        self._records = [Record(job) for job in ordered]
        self._policy, self._durations, self._watcher, self._more = policy, durations, watcher, more
        self._flavors = cluster.flavors
        self._free = {
            # Where machines are known, the policy counts by machine.
            flavor.name: {} if flavor.nodes else dict(flavor.capacity)
            for flavor in cluster.flavors
        }
        names = {job.queue for job in ordered}
        self._queues = {name: Queue(name=name) for name in sorted(names)} | dict(cluster.queues)
        self._half_life = cluster.options.half_life
        self._waiting = WaitingGangs()
        self._running = RunningGangs()
        self._promises: dict[int, Promise] = {}
        self._usage = dict(cluster.usage)
        self._rates: dict[str, dict[str, dict[str, float]]] = {}
        """What the running gangs of a queue use at present, by flavor and resource."""
        self._shares = names if len(names) > 1 else set()
        """The queues whose usage matters: a single one shares with none."""
        self._ends: list[tuple[float, int]] = []
        self._coming = 0
        """The place of the next job to submit; its id is one more."""

    def run(self) -> list[Record]:
        for job_id, record in enumerate(self._records, start=1):
            if record.job.begun is not None:
                self._continue(job_id, record.job.begun)
        wake: float | None = None
        while (now := self._next(wake)) is not None:
            self._end(now)
            if self._more is not None and self._coming == len(self._records):
                self._records += map(Record, self._more(now - BEGIN, self._waiting))
            submitted = self._submit(now)
            plan = self._pass(now, submitted)
            wake = plan.next_at if plan.next_at is not None and plan.next_at > now else None
        return self._records

    def _continue(self, job_id: int, begun: Begun) -> None:
        """Let a job run that has started before."""
        at = BEGIN + begun.at
        running = Running(self._gang_of(job_id), begun.allocation, at)
        self._hold(running, self._records[job_id - 1], BEGIN)
        self._records[job_id - 1].started_at = begun.at

    def _next(self, wake: float | None) -> float | None:
        """Return the time of the next event; None: nothing can happen any more."""
        times = [] if not self._ends else [self._ends[0][0]]
        if self._coming < len(self._records):
            times.append(max(BEGIN, BEGIN + self._records[self._coming].job.submitted_at))
        if wake is not None and len(self._waiting):
            times.append(wake)
        return min(times, default=None)

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at, job_id = heappop(self._ends)
            if (ended := self._running.remove(job_id)) is not None:
                self._count(ended, -1, at)
            self._durations.ended(self._records[job_id - 1].job)

    def _submit(self, now: float) -> list[int]:
        submitted = []
        while self._coming < len(self._records):
            job = self._records[self._coming].job
            if BEGIN + job.submitted_at > now:
                break
            self._coming += 1
            if job.begun is not None:
                continue
            self._waiting.add(self._gang_of(self._coming))
            if job.promise is not None:
                self._promises[self._coming] = replace(job.promise, at=BEGIN + job.promise.at)
                self._records[self._coming - 1].first_promise = job.promise.at
            submitted.append(self._coming)
        return submitted

    def _gang_of(self, job_id: int) -> Gang:
        job = self._records[job_id - 1].job
        return Gang(
            job_id=job_id,
            queue=job.queue,
            priority=job.priority,
            parts=job.parts,
            least=job.least,
            flavors=(job.flavor,) if job.flavor else (),
            expected=self._durations.expected(job),
        )

    def _pass(self, now: float, submitted: Sequence[int]) -> Plan:
        plan = self._policy(self._snapshot(now), now)
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
            self._watcher.passed(self._snapshot(now), now, submitted, plan)
        return plan

    def _snapshot(self, now: float) -> Snapshot:
        for queue in self._shares & self._rates.keys():
            self._advance(queue, now)
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
        running = Running(gang, allocation, now)
        free = self._free.get(allocation.flavor)
        if free is None:
            raise PolicyError(f"job {job_id} is started on an unknown flavor {allocation.flavor!r}")
        for resource, amount in used_by(running).items():
            if amount > free.get(resource, amount):
                raise PolicyError(
                    f"job {job_id} is started on {amount} {resource} of flavor {allocation.flavor!r}; "
                    f"{free[resource]} are free"
                )
        record.started_at = now - BEGIN
        self._hold(running, record, now)

    def _hold(self, running: Running, record: Record, now: float) -> None:
        """Let a gang run. One that has run longer than its job does ends at once."""
        job_id = running.gang.job_id
        self._running.add(running)
        record.held = used_by(running)
        self._count(running, 1, now)
        heappush(self._ends, (max(BEGIN, running.started_at + record.job.run), job_id))

    def _count(self, running: Running, sign: int, now: float) -> None:
        """Take what a gang uses, or give it back."""
        queue, flavor = running.gang.queue, running.allocation.flavor
        free, used = self._free.get(flavor, {}), used_by(running)
        for resource in free.keys() & used.keys():
            free[resource] -= sign * used[resource]
        if queue in self._shares:
            self._advance(queue, now)
            rates = self._rates.setdefault(queue, {}).setdefault(flavor, {})
            for resource, amount in used.items():
                rates[resource] = rates.get(resource, 0) + sign * amount

    def _advance(self, queue: str, now: float) -> None:
        """Bring the decayed usage of a queue up to now."""
        before = self._usage.get(queue) or Usage(now, {})
        self._usage[queue] = advanced(before, self._rates.get(queue, {}), now, self._half_life)
