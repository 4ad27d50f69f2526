"""Chooses running elastic gangs to resize: each is stopped, and continues with more or fewer instances.

A gang becomes smaller if this lets a waiting job start. A gang becomes larger if more capacity is free than
waiting jobs need. Each change has to pay: until the expected end of the gang, the change must gain more
instance-seconds than the stop loses. No change delays a start that was promised to another job. All functions
are pure.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from job_tracker.scheduling.capacity import FlavorCapacity, Slot, Use
from job_tracker.scheduling.changes import path_of
from job_tracker.scheduling.going_on import STOPPING
from job_tracker.scheduling.leaving import stakes_of
from job_tracker.scheduling.lengths import planned_end, planned_length, remaining
from job_tracker.scheduling.model import (
    Gang,
    Plan,
    Preempt,
    PreemptionReason,
    Reason,
    Reserve,
    Running,
    Snapshot,
    Stake,
)
from job_tracker.scheduling.preemption import is_protected, rules_of
from job_tracker.scheduling.running import running_gangs, trainers_of, used_by
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.standing import Standing
from job_tracker.scheduling.victims import Search, Victim, cost

_MOST: Final = 16
"""The largest number of gangs that become larger in one pass."""
_ANYWAY: Final = frozenset({Reason.MAX_RUNNING, Reason.LOST_CAPACITY})
"""Reasons for which jobs would wait even if running gangs became smaller."""


def resizes(snapshot: Snapshot, plan: Plan, now: float) -> tuple[tuple[Preempt, ...], float]:
    """Return the elastic gangs to stop, which then continue in another size. Also return the time at which
    the next elastic gang becomes old enough to be stopped.

    The time is infinite if there is no such gang. No gang is chosen while others are being preempted or
    resized, or while a job with a claim (see Snapshot.claims) waits: the freed capacity has to be used first.
    A claim no longer counts if the capacity of the flavors has become too small for the job.
    """
    elastic = [(_due_at(snapshot, run), run) for run in _elastic(snapshot)]
    later = min((at for at, _ in elastic if at > now), default=math.inf)
    due = [run for at, run in elastic if at <= now]
    if not due or not snapshot.is_open or plan.preempted:
        return (), later
    if any(stake.leaves_for is not None for stake in stakes_of(snapshot).leaving.values()):
        return (), later
    settled = {each.job_id for each in plan.admitted}
    settled |= {each.job_id for each in plan.reserved if Reason.LOST_CAPACITY in each.reasons}
    if any(job_id not in settled and snapshot.waiting.get(job_id) for job_id in snapshot.claims):
        return (), later
    if not plan.reserved and all(trainers_of(run) == run.gang.parts[0].count for run in due):
        return (), later
    return _Resizing(snapshot, plan, now).run(due), later


def _elastic(snapshot: Snapshot) -> Iterator[Running]:
    """Yield the gangs that may change their size and are not being stopped."""
    for job_id, run in running_gangs(snapshot.running).elastic.items():
        stake = snapshot.stakes.get(job_id)
        if stake is not None and not stake.is_leaving:
            yield run


def _due_at(snapshot: Snapshot, run: Running) -> float:
    period = rules_of(snapshot, run.gang.queue).resize_period
    return run.started_at + period if period > 0 else math.inf


class _Resizing:
    def __init__(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        self._snapshot, self._plan, self._now = snapshot, plan, now
        self._standing = Standing(snapshot, plan, now)

    def run(self, due: Sequence[Running]) -> tuple[Preempt, ...]:
        waiting = [each for each in self._plan.reserved if each.reasons[0] not in _ANYWAY]
        smaller = self._smaller(waiting, due)
        if smaller:
            return smaller
        named = len(self._plan.admitted) + len(self._plan.reserved)
        has_others = len(self._snapshot.waiting) > named
        waits_for_quota = [each for each in waiting if each.reasons[0] is Reason.QUOTA]
        unpromised = any(each.promise.at == math.inf for each in waiting if each not in waits_for_quota)
        if has_others or unpromised:
            return ()
        closed = {node for each in waits_for_quota for node in self._path(each.job_id)}
        return tuple(self._larger([run for run in due if not closed & self._path(run.gang.job_id)]))

    def _smaller(self, waiting: Sequence[Reserve], due: Sequence[Running]) -> tuple[Preempt, ...]:
        """Return the gangs that become smaller for one waiting job: the first job for which this pays and
        delays no promise.
        """
        seen: set[str] = set()
        for reserve in sorted(waiting, key=self._place):
            gang = self._snapshot.waiting.get(reserve.job_id)
            if gang is None or gang.job_id in self._snapshot.preempted or gang.queue in seen:
                continue
            seen.add(gang.queue)
            if reserve.reasons[0] in (Reason.CAPACITY, Reason.FRAGMENTED):
                chosen = self._chosen(gang, due)
                if chosen and self._pays(gang, reserve, chosen) and self._keeps_promises(gang, chosen):
                    return tuple(_smaller(victim, kept, gang) for victim, kept in chosen)
        return ()

    def _place(self, reserve: Reserve) -> tuple[int, int]:
        gang = self._snapshot.waiting.get(reserve.job_id)
        return (-gang.priority if gang is not None else 0, reserve.job_id)

    def _chosen(self, gang: Gang, due: Sequence[Running]) -> list[tuple[Victim, int]] | None:
        victims = [victim for run in due if (victim := self._victim(gang, run)) is not None]
        if not victims:
            return None
        parts = with_trainers(gang.parts, fewest_trainers(gang))
        search = Search(self._standing, gang, self._standing.flavors_of(gang), parts)
        return search.run(sorted(victims, key=lambda each: (each.cost, -each.run.gang.job_id)), whole=False)

    def _victim(self, gang: Gang, run: Running) -> Victim | None:
        """Return the running gang as a victim if it may become smaller for `gang`; None if it may not."""
        queue, stake = run.gang.queue, self._stake(run)
        least = fewest_trainers(run.gang)
        if least >= trainers_of(run) or (queue == gang.queue and run.gang.priority > gang.priority):
            return None
        if is_protected(rules_of(self._snapshot, queue), run, stake, self._now):
            return None
        if queue != gang.queue and self._would_lend(gang, run):
            return None
        loss = cost(run, stake, self._now)
        return Victim(run=run, attempt=stake.attempt, cost=loss, why=PreemptionReason.SHRINK, least=least)

    def _would_lend(self, gang: Gang, run: Running) -> bool:
        """Return whether `gang` would get capacity that is guaranteed to the queue of the running gang, but
        not to the queue of `gang`.
        """
        flavor, lender, borrower = run.allocation.flavor, run.gang.queue, gang.queue
        wanted = total(with_trainers(gang.parts, fewest_trainers(gang)))
        self._standing.count(run, -1)
        is_own = self._standing.is_guaranteed(lender, flavor, used_by(run), against=borrower)
        borrows = not self._standing.is_guaranteed(borrower, flavor, wanted, against=lender)
        self._standing.count(run)
        return is_own and borrows

    def _pays(self, gang: Gang, reserve: Reserve, chosen: Sequence[tuple[Victim, int]]) -> bool:
        """Return whether the waiting gang would otherwise wait so long that the stops pay.

        `chosen` has the victims, each with the number of trainers that it keeps.
        """
        instances = sum(part.count for part in with_trainers(gang.parts, fewest_trainers(gang)))
        run_on = max(remaining(victim.run, self._now) for victim, _ in chosen)
        gain = instances * min(reserve.promise.at - self._now, run_on)
        return gain > sum(self._loss(victim.run, kept) for victim, kept in chosen)

    def _keeps_promises(self, gang: Gang, chosen: Sequence[tuple[Victim, int]]) -> bool:
        """Return whether the gang can start without delaying others, once the `chosen` gangs run again in
        smaller sizes.
        """
        parts = with_trainers(gang.parts, fewest_trainers(gang))
        length = planned_length(gang.expected) + STOPPING
        for name in self._standing.flavors_of(gang):
            capacity = self._capacity(name)
            for victim, kept in chosen:
                if victim.run.allocation.flavor == name:
                    self._count(capacity, victim.run, -1)
                    until = self._now + planned_length(victim.run.gang.expected) + STOPPING
                    capacity.count(victim.shrunk(kept), self._now, until=until)
            if capacity.fits_at(parts, length, self._now) is not None:
                return capacity.leaves(parts, length, self._promised(name, besides=gang.job_id))
        return False

    def _larger(self, due: Sequence[Running]) -> Iterator[Preempt]:
        """Yield the gangs that become larger.

        Gangs that have the smallest part of their requested trainers come first.
        """
        capacities: dict[str, FlavorCapacity] = {}
        found = 0
        for run in sorted(due, key=_share):
            held, asked, flavor = trainers_of(run), run.gang.parts[0].count, run.allocation.flavor
            if held >= asked or flavor not in self._standing.flavors or found == _MOST:
                continue
            capacity = capacities.get(flavor) or capacities.setdefault(flavor, self._capacity(flavor))
            self._standing.count(run, -1)
            self._count(capacity, run, -1)
            trainers, slot = self._most(capacity, run)
            if trainers > held and self._pays_to_grow(run, trainers):
                length = planned_length(run.gang.expected) + STOPPING
                capacity.take(with_trainers(run.gang.parts, trainers), slot, length)
                self._standing.start(run.gang, flavor, trainers)
                found += 1
                yield Preempt(
                    job_id=run.gang.job_id,
                    attempt=self._stake(run).attempt,
                    by_job=0,
                    why=PreemptionReason.GROW,
                    trainers=trainers,
                )
            else:
                self._standing.count(run)
                self._count(capacity, run)

    def _most(self, capacity: FlavorCapacity, run: Running) -> tuple[int, Slot]:
        """Return the largest number of trainers for the running gang that delays no promise, and the slot for
        them.

        If further trainers do not fit, this is the present number.
        """
        gang, flavor = run.gang, run.allocation.flavor
        length = planned_length(gang.expected) + STOPPING
        low, high, slot = trainers_of(run), gang.parts[0].count, Slot(self._now)
        while low < high:
            trainers = (low + high + 1) // 2
            parts = with_trainers(gang.parts, trainers)
            found = None
            if self._standing.fits(gang.queue, flavor, parts, total(parts)):
                found = capacity.fits_at(parts, length, self._now)
            if found is not None and capacity.leaves(parts, length, self._promised(flavor)):
                low, slot = trainers, found
            else:
                high = trainers - 1
        return low, slot

    def _pays_to_grow(self, run: Running, trainers: int) -> bool:
        """Return whether the gang would end earlier with more trainers, despite repeated work and another
        startup.
        """
        more = trainers - trainers_of(run)
        return more * remaining(run, self._now) > self._loss(run, trainers)

    def _loss(self, run: Running, trainers: int) -> float:
        """Return the loss by a change to this number of trainers, in instance-seconds.

        The work since the last checkpoint counts for the old size, and the startup for the new size.
        """
        stake = self._stake(run)
        return cost(run, stake, self._now) + (trainers - trainers_of(run)) * stake.startup

    def _capacity(self, name: str) -> FlavorCapacity:
        """Return the flavor's free resources over time. Gangs that run, or that start now, are subtracted."""
        flavor = next(each for each in self._snapshot.flavors if each.name == name)
        capacity = FlavorCapacity(flavor, self._now, running_gangs(self._snapshot.running))
        for admit in self._plan.admitted:
            gang = self._snapshot.waiting.get(admit.job_id)
            if gang is not None and admit.allocation.flavor == name:
                parts = with_trainers(gang.parts, admit.allocation.trainers)
                slot = Slot(self._now, admit.allocation.nodes)
                capacity.take(parts, slot, planned_length(gang.expected))
        return capacity

    def _count(self, capacity: FlavorCapacity, run: Running, sign: int = 1) -> None:
        capacity.count(run, self._now, sign, until=planned_end(run, self._now))

    def _promised(self, flavor: str, besides: int = 0) -> Iterator[Use]:
        """Yield the promised uses of the flavor by waiting gangs, except by the gang of the job `besides`."""
        for reserve in self._plan.reserved:
            gang, promise = self._snapshot.waiting.get(reserve.job_id), reserve.promise
            if gang is None or gang.job_id == besides:
                continue
            if promise.flavor == flavor and promise.at < math.inf:
                least = with_trainers(gang.parts, fewest_trainers(gang))
                yield least, promise.at, planned_length(gang.expected)

    def _path(self, job_id: int) -> set[str]:
        """Return the names of a job's queue and of the parents of that queue.

        Empty: the job neither waits nor runs.
        """
        run = self._snapshot.running.get(job_id)
        gang = run.gang if run is not None else self._snapshot.waiting.get(job_id)
        return set() if gang is None else {node.name for node in path_of(self._snapshot, gang.queue)}

    def _stake(self, run: Running) -> Stake:
        return self._snapshot.stakes[run.gang.job_id]


def _smaller(victim: Victim, kept: int, gang: Gang) -> Preempt:
    return Preempt(
        job_id=victim.run.gang.job_id,
        attempt=victim.attempt,
        by_job=gang.job_id,
        why=PreemptionReason.SHRINK,
        trainers=kept,
    )


def _share(run: Running) -> tuple[float, int]:
    return (trainers_of(run) / run.gang.parts[0].count, run.gang.job_id)
