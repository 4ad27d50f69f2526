"""Replays jobs through a policy, from event to event, without waiting and without a real clock."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, Protocol, TypeAlias

from job_tracker.domain.history import Preemption
from job_tracker.scheduling.board import advanced
from job_tracker.scheduling.model import (
    INSTANCES,
    Allocation,
    Gang,
    Plan,
    Preempt,
    Promise,
    Queue,
    Running,
    Snapshot,
    Stake,
    Usage,
    Waiting,
)
from job_tracker.scheduling.preemption_view import Claim, claims_of, going_on_of
from job_tracker.scheduling.running import RunningGangs, used_by
from job_tracker.scheduling.simulation.attempts import STOP_SECONDS, Attempt, Span
from job_tracker.scheduling.simulation.cluster import BEGIN, Cluster
from job_tracker.scheduling.simulation.durations import Durations, ExactDurations
from job_tracker.scheduling.simulation.record import Record
from job_tracker.scheduling.simulation.trace import Begun, TraceJob
from job_tracker.scheduling.waiting import WaitingGangs

Policy: TypeAlias = Callable[[Snapshot, float], Plan]

DAY: Final = 86_400.0


class Watcher(Protocol):
    """Sees each pass, for example to judge estimates."""

    def passed(self, snapshot: Snapshot, now: float, submitted: Sequence[int], plan: Plan) -> None:
        """Learn from a plan, the snapshot after its decisions, and the jobs submitted since the last plan."""
        ...


More: TypeAlias = Callable[[float, Waiting], Iterable[TraceJob]]
"""Returns the jobs that are submitted at a given time.

The arguments are this time, in seconds from the beginning of the simulation, and the waiting jobs.
"""


class PolicyError(Exception):
    """A policy has broken a rule. For example, it started a job twice, or a job that does not fit."""


def replay(
    jobs: Iterable[TraceJob],
    policy: Policy,
    cluster: Cluster,
    durations: Durations | None = None,
    watcher: Watcher | None = None,
    more: More | None = None,
) -> list[Record]:
    """Return the outcome of each job, in the order of submissions. Raises PolicyError.

    If the policy never starts a job, the job's record has no start. Once all jobs are submitted, `more` is
    asked for further jobs at each event.
    """
    return _Replay(jobs, policy, cluster, durations or ExactDurations(), watcher, more).run()


@dataclass(frozen=True, slots=True)
class _Stop:
    """A stop of a job. The stop is still under way, or the job has not run again since."""

    noticed_at: float
    decision: Preempt | None = None
    """The decision of the policy. None: the job's machines were taken away."""
    preemption: Preemption | None = None


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
            # If machines are known, the policy counts free resources by machine, and its count is not
            # checked here.
            flavor.name: {} if flavor.nodes else dict(flavor.capacity)
            for flavor in cluster.flavors
        }
        names = {job.queue for job in ordered}
        self._queues = {name: Queue(name=name) for name in sorted(names)} | dict(cluster.queues)
        self._half_life, self._spot = cluster.options.half_life, cluster.spot
        self._waiting = WaitingGangs()
        self._running = RunningGangs()
        self._promises: dict[int, Promise] = {}
        self._usage = dict(cluster.usage)
        self._rates: dict[str, dict[str, dict[str, float]]] = {}
        """The amounts that running gangs use now, by queue, flavor and resource."""
        self._shares = names if len(names) > 1 else set()
        """The queues whose usage is counted. A single queue is not counted, since it shares with no other."""
        self._ends: list[tuple[float, int, int]] = []
        """The times at which attempts end if they are not stopped, each with its job and attempt."""
        self._evictions: list[tuple[float, int, int]] = []
        """The times at which attempts lose a machine, each with its job and attempt."""
        self._leaves: list[tuple[float, int, int]] = []
        """The times at which the groups of stopped attempts are gone, each with its job and attempt."""
        self._attempts: dict[int, Attempt] = {}
        """The last attempt of each job that has made an attempt."""
        self._given_way: dict[int, _Stop] = {}
        """The stops of jobs that are being stopped, or that have not run again since their stop."""
        self._left: set[Claim] = set()
        """The claims of waiting jobs on the resources of jobs that were being stopped for them, but ended by
        themselves."""
        self._may_stop = any(
            queue.preemption.by_priority or queue.limits for queue in self._queues.values()
        ) or bool(self._spot or any(job.least for job in ordered))
        """Whether jobs may be stopped. If not, the snapshots do not say what a stop of each job would
        cost (`Stake`), to save time."""
        self._coming = 0
        """The index of the next job to submit. Its id is the index plus one."""

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
        """Continue a job that started before the simulation."""
        record = self._records[job_id - 1]
        record.started_at = begun.at
        attempt = Attempt(1, BEGIN + begun.at, record.job.saving, record.job.run)
        if begun.saved_at is not None:
            attempt.saved = max(0.0, begun.saved_at - begun.at)
        self._hold(Running(self._gang_of(job_id), begun.allocation, attempt.begun_at), attempt, BEGIN)

    def _next(self, wake: float | None) -> float | None:
        """Return the time of the next event; None if there is none.

        `wake` is the time at which the policy wants to plan.
        """
        times = [each[0][0] for each in (self._ends, self._evictions, self._leaves) if each]
        if self._coming < len(self._records):
            times.append(max(BEGIN, BEGIN + self._records[self._coming].job.submitted_at))
        if wake is not None and (len(self._waiting) or self._running):
            times.append(wake)
        return min(times, default=None)

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at, job_id, number = heappop(self._ends)
            if not self._is_running(job_id, number):
                continue  # the attempt was stopped before this end
            attempt, record = self._attempts[job_id], self._records[job_id - 1]
            stop = self._given_way.pop(job_id, None)
            if stop is not None and stop.preemption is not None:
                self._left.add((stop.preemption.by_job, stop.preemption.by_attempt))
            self._release(job_id, at, attempt.startup)
            record.is_done = True
            self._durations.ended(record.job)
        while self._evictions and self._evictions[0][0] <= now:
            at, job_id, number = heappop(self._evictions)
            if self._is_running(job_id, number) and job_id not in self._given_way:
                self._begin_to_leave(job_id, _Stop(at))
        while self._leaves and self._leaves[0][0] <= now:
            at, job_id, number = heappop(self._leaves)
            if self._is_running(job_id, number):
                self._leave(job_id, at)

    def _leave(self, job_id: int, at: float) -> None:
        """Let a job that was stopped leave its machines at this time, and wait again at its earlier place."""
        attempt = self._attempts[job_id]
        stop = self._given_way[job_id]
        self._release(job_id, at, attempt.lost(stop.noticed_at, at))
        record = self._records[job_id - 1]
        if stop.decision is not None:
            record.stops.append(stop.decision)
        else:
            record.evictions += 1
        attempt.done = attempt.kept(stop.noticed_at)
        self._waiting.add(self._gang_of(job_id))

    def _is_running(self, job_id: int, number: int) -> bool:
        return job_id in self._running and self._attempts[job_id].number == number

    def _release(self, job_id: int, at: float, lost: float) -> None:
        """Release the resources of the job's attempt, and record the attempt with its lost seconds."""
        running = self._running.remove(job_id)
        assert running is not None
        self._count(running, -1, at)
        begin = self._attempts[job_id].begun_at - BEGIN
        self._records[job_id - 1].spans.append(Span(begin, at - BEGIN, used_by(running), lost))

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
                self._records[self._coming - 1].promise(job.promise.at)
            submitted.append(self._coming)
        return submitted

    def _gang_of(self, job_id: int) -> Gang:
        job = self._records[job_id - 1].job
        if (before := self._attempts.get(job_id)) is not None:
            job = replace(job, run=job.saving.startup + job.run - before.done)
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
        for preempt in plan.preempted:
            self._stop(preempt, now)
        self._promises = {reserve.job_id: reserve.promise for reserve in plan.reserved}
        for reserve in plan.reserved:
            record = self._records[reserve.job_id - 1]
            record.promise(reserve.promise.at - BEGIN)
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
            stakes=self._stakes(now) if self._may_stop else {},
            claims=self._claims(),
            going_on=going_on_of(self._preemptions(), self._waiting),
            preempted={job_id for job_id in self._preemptions() if self._waiting.get(job_id) is not None},
        )

    def _stakes(self, now: float) -> dict[int, Stake]:
        return {job_id: self._stake(job_id, now) for job_id in self._running}

    def _stake(self, job_id: int, now: float) -> Stake:
        attempt, record = self._attempts[job_id], self._records[job_id - 1]
        stop = self._given_way.get(job_id)
        decision = stop.decision if stop is not None else None
        return Stake(
            attempt=attempt.number,
            saved_at=attempt.saved_at(now),
            startup=attempt.saving.startup,
            preemptions=record.job.preemptions + sum(not each.trainers for each in record.stops),
            is_leaving=stop is not None,
            leaves_for=decision.by_job if decision is not None else None,
            goes_on=decision.trainers if decision is not None else 0,
            noticed_at=stop.noticed_at if stop is not None else 0.0,
        )

    def _claims(self) -> Sequence[int]:
        if not self._given_way and not self._left:
            return ()
        given_way = self._preemptions()
        self._left = {each for each in self._left if self._waiting.get(each[0]) is not None}
        named = {*(each.by_job for each in given_way.values()), *(job_id for job_id, _ in self._left)}
        attempts = {job_id: self._number(job_id) for job_id in named}
        return claims_of(given_way, attempts, self._waiting, self._left)

    def _preemptions(self) -> dict[int, Preemption]:
        return {job_id: stop.preemption for job_id, stop in self._given_way.items() if stop.preemption}

    def _number(self, job_id: int) -> int:
        """Return the number of attempts that a job has made."""
        attempt = self._attempts.get(job_id)
        return attempt.number if attempt is not None else 0

    def _stop(self, decision: Preempt, now: float) -> None:
        job_id = decision.job_id
        if job_id not in self._running or job_id in self._given_way:
            raise PolicyError(f"job {job_id} is stopped, but it does not run, or is being stopped already")
        preemption = Preemption(
            by_job=decision.by_job,
            why=decision.why,
            by_attempt=self._number(decision.by_job),
            trainers=decision.trainers,
            flavor=self._running[job_id].allocation.flavor if decision.trainers else "",
        )
        self._begin_to_leave(job_id, _Stop(now, decision, preemption))

    def _begin_to_leave(self, job_id: int, stop: _Stop) -> None:
        self._given_way[job_id] = stop
        heappush(self._leaves, (stop.noticed_at + STOP_SECONDS, job_id, self._attempts[job_id].number))

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
        if record.started_at is None:
            record.started_at = now - BEGIN
        self._given_way.pop(job_id, None)
        before = self._attempts.get(job_id)
        attempt = Attempt(1 if before is None else before.number + 1, now, record.job.saving, record.job.run)
        attempt.done = 0.0 if before is None else before.done
        attempt.speed = _speed(record.job, allocation)
        self._hold(running, attempt, now)

    def _hold(self, running: Running, attempt: Attempt, now: float) -> None:
        """Let a gang hold its resources from now on, and plan its end, which may be at once."""
        job_id = running.gang.job_id
        self._attempts[job_id] = attempt
        self._running.add(running)
        self._count(running, 1, now)
        end = max(BEGIN, attempt.begun_at + attempt.length)
        heappush(self._ends, (end, job_id, attempt.number))
        machines = used_by(running).get(INSTANCES, 0)
        if self._spot is not None and machines:
            lost_at = now + self._spot.first_of(job_id, attempt.number, machines)
            if lost_at < end:
                heappush(self._evictions, (lost_at, job_id, attempt.number))

    def _count(self, running: Running, sign: int, now: float) -> None:
        """Take the resources that a gang uses (`sign` is 1), or release them (-1)."""
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


def _speed(job: TraceJob, allocation: Allocation) -> float:
    """Return the speed of a job with this allocation, as a multiple of the speed that `TraceJob.run` assumes.

    Only elastic jobs have speeds other than 1.
    """
    asked = job.parts[0].count
    usual = (job.begun.allocation.trainers if job.begun is not None else 0) or asked
    return (allocation.trainers or asked) / usual if job.least else 1.0
