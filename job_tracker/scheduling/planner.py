"""Decides which waiting jobs start now, and when the first of the others are to start.

The rule is conservative backfill (Mu'alem and Feitelson, IEEE TPDS 2001): the first waiting jobs hold
reservations, and a job starts early only if it delays none of them. Across queues, those that have used less
go first (shares.py), within their quotas (quotas.py).

The start of a job is unknown as long as a job of unknown duration uses what it needs. Such a job is overtaken
by a bounded number of others, and then holds all others back. The same bound holds within its queue.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from job_tracker.scheduling.machines import FreeMachines
from job_tracker.scheduling.model import (
    Admit,
    Allocation,
    Flavor,
    Gang,
    Plan,
    Promise,
    Reason,
    Reserve,
    Running,
    Snapshot,
)
from job_tracker.scheduling.profile import FreeOverTime, needs_of
from job_tracker.scheduling.quotas import Quotas
from job_tracker.scheduling.shares import FairOrder, Shares

_TOLERANCE: Final = 1.0
"""Seconds by which a start may be later than promised without a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """Options of the planner."""

    reservations: int = 100
    """How many waiting jobs hold a reservation."""
    overtake_limit: int = 8
    """How often the first waiting job may be overtaken if its start, or the other's duration, is unknown."""
    half_life: float = 7 * 86400.0
    """In which time a queue's usage decays to half, in seconds."""
    tested: int = 1000
    """How many jobs behind the reservations are considered in one pass."""
    admitted: int = 1000
    """How many jobs may start in one pass. Others follow in the next."""


DEFAULT_OPTIONS: Final = PlannerOptions()


def plan(snapshot: Snapshot, now: float, options: PlannerOptions = DEFAULT_OPTIONS) -> Plan:
    """Return the decisions for a snapshot at a time. The same arguments give the same plan."""
    return _Pass(snapshot, now, options).run()


def length_of(gang: Gang) -> float:
    """Return how long a gang is expected to run, in seconds; infinity: unknown."""
    return gang.expected.median if gang.expected else math.inf


def end_of(running: Running, now: float) -> float:
    """Return when a running gang is expected to end.

    One that runs longer than expected is taken to need twice as long, again and again.
    """
    length = max(1.0, length_of(running.gang))
    while running.started_at + length <= now:
        length *= 2
    return running.started_at + length


@dataclass(slots=True)
class _Try:
    """What became of one gang on the flavors that it may use."""

    started: Admit | None = None
    at: float = math.inf
    """The earliest start otherwise."""
    flavor: str = ""
    needs: Sequence[int] = ()
    reason: Reason = Reason.CAPACITY


@dataclass(slots=True)
class _Head:
    """A waiting job that others may overtake only so often."""

    job_id: int
    overtaken: int
    is_known: bool
    """Whether it has a reservation."""


@dataclass(slots=True)
class _Made:
    """The decisions so far."""

    admitted: list[Admit] = field(default_factory=list)
    reserved: list[Reserve] = field(default_factory=list)


class _Pass:
    def __init__(self, snapshot: Snapshot, now: float, options: PlannerOptions) -> None:
        self._snapshot, self._now, self._options = snapshot, now, options
        self._flavors = {flavor.name: flavor for flavor in snapshot.flavors}
        running: dict[str, list[Running]] = {name: [] for name in self._flavors}
        for each in snapshot.running.values():
            running.setdefault(each.allocation.flavor, []).append(each)
        self._free = {
            name: FreeOverTime(
                now,
                flavor.capacity,
                (
                    (end_of(each, now), needs_of(each.gang, _trainers(each.gang, each.allocation)))
                    for each in running[name]
                ),
            )
            for name, flavor in self._flavors.items()
        }
        self._machines = {
            name: FreeMachines(flavor, running[name])
            for name, flavor in self._flavors.items()
            if flavor.nodes
        }
        every = snapshot.running.values()
        self._quotas = Quotas(snapshot.flavors, snapshot.queues, every)
        self._shares = Shares(
            snapshot.flavors, snapshot.queues, snapshot.usage, every, now, options.half_life
        )
        self._heads: dict[str, _Head] = {}
        self._first: _Head | None = None
        self._made = _Made()
        self._failed: set[tuple[object, ...]] = set()
        self._with_priority: set[str] = set()

    def run(self) -> Plan:
        """Consider gangs in order, until no further one can start or hold a reservation."""
        tested = 0
        next_at: float | None = None
        for gang in self._in_order():
            is_behind = len(self._made.reserved) >= self._options.reservations
            if is_behind:
                tested += 1
                if tested > self._options.tested or self._nothing_can_start():
                    break
                if _shape(gang) in self._failed:
                    continue
            if len(self._made.admitted) >= self._options.admitted:
                next_at = self._now
                break
            self._consider(gang, is_behind=is_behind)
        starts = [each.promise.at for each in self._made.reserved if self._now < each.promise.at < math.inf]
        if next_at is None and starts and self._snapshot.is_open:
            next_at = min(starts)
        return Plan(admitted=tuple(self._made.admitted), reserved=tuple(self._made.reserved), next_at=next_at)

    def _consider(self, gang: Gang, *, is_behind: bool) -> None:
        outcome = self._try(gang)
        if outcome.started is not None:
            self._start(gang, outcome.started)
            return
        if is_behind:
            self._failed.add(_shape(gang))
            return
        if outcome.at < math.inf:
            self._free[outcome.flavor].take(outcome.at, length_of(gang), outcome.needs)
        if outcome.reason is Reason.LENT:
            self._quotas.reclaim(outcome.flavor, needs_of(gang, _least(gang)))
        self._reserve(gang, outcome)

    def _start(self, gang: Gang, admit: Admit) -> None:
        allocation = admit.allocation
        trainers = _trainers(gang, allocation)
        free, needs = self._free[allocation.flavor], needs_of(gang, trainers)
        if length_of(gang) == math.inf:
            self._count_overtaking(gang)
        else:
            self._count_overtaking(gang, only_unknown=True)
        free.take(self._now, max(1.0, length_of(gang)), free.vector(gang, trainers))
        if allocation.nodes:
            self._machines[allocation.flavor].take(gang, trainers, allocation.nodes)
        self._quotas.take(gang.queue, allocation.flavor, needs)
        self._shares.charge(gang, allocation.flavor, needs)
        self._made.admitted.append(admit)

    def _reserve(self, gang: Gang, outcome: _Try) -> None:
        before = self._snapshot.promises.get(gang.job_id)
        flavor = outcome.flavor or next((each.name for each in self._allowed(gang)), "")
        promise = Promise(outcome.at, flavor, before.overtaken if before else 0)
        reasons = [outcome.reason]
        if gang.queue in self._heads:
            reasons.append(Reason.ORDER)
        elif self._made.reserved:
            reasons.append(Reason.SHARE)
        head = _Head(gang.job_id, promise.overtaken, outcome.at < math.inf)
        self._heads.setdefault(gang.queue, head)
        if self._first is None and outcome.reason not in (
            Reason.QUOTA,
            Reason.MAX_RUNNING,
            Reason.LOST_CAPACITY,
        ):
            self._first = self._heads[gang.queue] if self._heads[gang.queue].job_id == gang.job_id else head
        moved = self._why_moved(gang, before, promise)
        self._made.reserved.append(Reserve(gang.job_id, promise, tuple(dict.fromkeys(reasons)), moved))
        if flavor:
            self._shares.charge(gang, flavor, needs_of(gang, _least(gang)))

    def _try(self, gang: Gang) -> _Try:
        """Find a flavor on which the gang starts now, or the earliest start."""
        outcome = _Try(reason=Reason.LOST_CAPACITY)
        can_overtake = self._can_overtake(gang)
        for flavor in self._allowed(gang):
            found = self._try_on(gang, flavor, can_overtake=can_overtake)
            if found.started is not None:
                return found
            if not outcome.flavor or (found.at, _RANK[found.reason]) < (outcome.at, _RANK[outcome.reason]):
                outcome = found
        return outcome

    def _try_on(self, gang: Gang, flavor: Flavor, *, can_overtake: bool) -> _Try:
        free, length = self._free[flavor.name], length_of(gang)
        least = _least(gang)
        needs = free.vector(gang, least)
        result = _Try(flavor=flavor.name, needs=needs)
        if any(want > have for want, have in zip(needs, free.capacity, strict=True)):
            result.reason = Reason.LOST_CAPACITY
            return result
        if not self._quotas.fits_ever(gang.queue, flavor.name, needs_of(gang, least)):
            result.reason = Reason.LOST_CAPACITY
            return result
        if why := self._quotas.problem(gang.queue, flavor.name, needs_of(gang, least)):
            result.reason = why
            return result
        if any(want > have for want, have in zip(needs, free.free_now, strict=True)):
            result.reason = Reason.CAPACITY
        elif not free.fits_now(needs, length):
            result.reason = Reason.RESERVED
        elif not self._snapshot.is_open:
            result.at, result.reason = self._now, Reason.ROOM
            return result
        elif not can_overtake:
            result.reason = Reason.UNKNOWN_LENGTH
            return result
        else:
            trainers = self._most_trainers(gang, flavor)
            machines = self._machines.get(flavor.name)
            nodes = machines.place(gang, trainers) if machines else ()
            if nodes is None and machines is not None:  # fewer may fit on the machines
                trainers = next(
                    (n for n in range(trainers - 1, least - 1, -1) if machines.place(gang, n) is not None), 0
                )
                nodes = machines.place(gang, trainers) if trainers else None
            if nodes is not None:
                allocated = 0 if trainers == gang.parts[0].count else trainers
                result.started = Admit(
                    gang.job_id, Allocation(flavor=flavor.name, trainers=allocated, nodes=nodes)
                )
                return result
            result.reason = Reason.FRAGMENTED
            result.at = self._after_next_end(flavor.name, needs, length)
            return result
        result.at = free.earliest(needs, length)
        return result

    def _most_trainers(self, gang: Gang, flavor: Flavor) -> int:
        """Return the largest number of trainers that can start now. The least can."""
        low, high = _least(gang), gang.parts[0].count
        free, length = self._free[flavor.name], length_of(gang)
        while low < high:
            middle = (low + high + 1) // 2
            fits = free.fits_now(free.vector(gang, middle), length) and not self._quotas.problem(
                gang.queue, flavor.name, needs_of(gang, middle)
            )
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def _after_next_end(self, flavor: str, needs: Sequence[int], length: float) -> float:
        """Return the earliest start of a gang for which the machines have no room before one ends."""
        ends = [
            end_of(each, self._now)
            for each in self._snapshot.running.values()
            if each.allocation.flavor == flavor
        ]
        end = min(ends, default=math.inf)
        return max(end, self._free[flavor].earliest(needs, length)) if end < math.inf else math.inf

    def _can_overtake(self, gang: Gang) -> bool:
        is_known = length_of(gang) < math.inf
        limit = self._options.overtake_limit
        return all(head.overtaken < limit for head in self._overtaken_by(gang, only_unknown=is_known))

    def _count_overtaking(self, gang: Gang, *, only_unknown: bool = False) -> None:
        for head in self._overtaken_by(gang, only_unknown=only_unknown):
            head.overtaken += 1
            for index, each in enumerate(self._made.reserved):
                if each.job_id == head.job_id:
                    promise = replace(each.promise, overtaken=head.overtaken)
                    self._made.reserved[index] = replace(each, promise=promise)
                    break

    def _overtaken_by(self, gang: Gang, *, only_unknown: bool) -> Iterable[_Head]:
        """Return the jobs that this gang overtakes if it starts: with `only_unknown`, those without a
        reservation."""
        heads = {id(head): head for head in (self._first, self._heads.get(gang.queue)) if head is not None}
        return [head for head in heads.values() if not (only_unknown and head.is_known)]

    def _nothing_can_start(self) -> bool:
        return not self._snapshot.is_open or all(free.is_full for free in self._free.values())

    def _allowed(self, gang: Gang) -> Iterable[Flavor]:
        if not gang.flavors:
            return self._flavors.values()
        return [self._flavors[name] for name in gang.flavors if name in self._flavors]

    def _in_order(self) -> Iterator[Gang]:
        waiting = self._snapshot.waiting
        promised: dict[str, list[Gang]] = {}
        for job_id, promise in self._snapshot.promises.items():
            gang = waiting.get(job_id) if promise.at < math.inf else None
            if gang is not None:
                promised.setdefault(gang.queue, []).append(gang)
        gangs = {queue: self._in_queue(queue, promised.get(queue, ())) for queue in waiting.queues()}
        if len(gangs) == 1:
            return next(iter(gangs.values()))
        return iter(FairOrder(self._shares, gangs))

    def _in_queue(self, queue: str, promised: Sequence[Gang]) -> Iterator[Gang]:
        """Return the gangs of a queue by priority: first those with a promise, by the promised start."""
        if not promised:
            return iter(self._snapshot.waiting.in_order(queue))
        promises = self._snapshot.promises
        first = sorted(promised, key=lambda gang: (-gang.priority, promises[gang.job_id].at, gang.job_id))
        return _merged(first, self._snapshot.waiting.in_order(queue))

    def _why_moved(self, gang: Gang, before: Promise | None, promise: Promise) -> str:
        """Return why the start is later than promised; empty if it is not."""
        if before is None or before.at == math.inf or promise.at <= before.at + _TOLERANCE:
            return ""
        snapshot = self._snapshot
        longer = [
            each.gang.job_id
            for each in snapshot.running.values()
            if each.started_at + length_of(each.gang) <= self._now
        ]
        if longer:
            return f"Job {min(longer)} runs longer than expected."
        ahead = [snapshot.waiting.get(each.job_id) for each in self._made.reserved]
        if any(each.priority > gang.priority for each in ahead if each and each.queue == gang.queue):
            return "A job with a higher priority goes first."
        if any(each.queue != gang.queue for each in ahead if each):
            return "A queue that has used less for its weight goes first."
        return "There is less capacity than before."


_RANK: Final[Mapping[Reason, int]] = {reason: index for index, reason in enumerate(Reason)}


def _merged(first: Iterable[Gang], every: Iterable[Gang]) -> Iterator[Gang]:
    """Return all gangs by priority: of each priority those of `first` before the others."""
    begun = list(first)
    known = {gang.job_id for gang in begun}
    place = 0
    for gang in every:
        while place < len(begun) and begun[place].priority >= gang.priority:
            yield begun[place]
            place += 1
        if gang.job_id not in known:
            yield gang
    yield from islice(begun, place, None)


def _shape(gang: Gang) -> tuple[object, ...]:
    """Return what decides whether a gang can start now: alike gangs fail alike."""
    return (
        gang.queue,
        gang.least,
        gang.flavors,
        gang.expected,
        tuple((part.count, id(part.each)) for part in gang.parts),
    )


def _least(gang: Gang) -> int:
    return gang.least or gang.parts[0].count


def _trainers(gang: Gang, allocation: Allocation) -> int:
    return allocation.trainers or gang.parts[0].count
