"""Which running jobs are stopped for waiting ones: those that lose least. It is pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from job_tracker.scheduling.model import (
    Gang,
    Part,
    Plan,
    Preempt,
    PreemptionReason,
    PreemptionRules,
    Reason,
    Resources,
    Running,
    Snapshot,
    Stake,
)
from job_tracker.scheduling.shapes import fewest_trainers, held_parts, total, with_trainers
from job_tracker.scheduling.standing import Standing

_MOST_JOBS: Final = 16
"""For so many waiting jobs, others are stopped in one pass."""


def preemptions(snapshot: Snapshot, plan: Plan, now: float) -> tuple[Preempt, ...]:
    """Return the running jobs that are stopped for waiting ones which the plan does not admit.

    In each queue they are stopped for the first waiting job that may have others stopped, then for the next.
    If they are not enough for a job, none are stopped for those behind it.
    """
    wanted = _wanted(snapshot, plan)
    if not wanted:
        return ()
    standing = Standing(snapshot, plan, now)
    found: list[Preempt] = []
    closed: set[str] = set()
    served = 0
    for gang in wanted:
        if gang.queue in closed or gang.job_id in standing.started:
            continue
        victims = _victims(snapshot, standing, gang, now)
        if victims is None:
            closed.add(gang.queue)
            continue
        found += victims
        served += bool(victims)
        if served == _MOST_JOBS:
            break
    return tuple(found)


def cost(run: Running, stake: Stake, now: float) -> float:
    """Return what a running job loses if it is stopped now, in instances times seconds."""
    instances = sum(part.count for part in held_parts(run.gang, run.allocation))
    return instances * (max(0.0, now - stake.saved_at) + stake.startup)


def rules_of(snapshot: Snapshot, queue: str) -> PreemptionRules:
    """Return the rules of a queue."""
    known = snapshot.queues.get(queue)
    return known.preemption if known is not None else PreemptionRules()


def _wanted(snapshot: Snapshot, plan: Plan) -> list[Gang]:
    """Return the waiting gangs for which others may be stopped: what is guaranteed goes first."""
    if not snapshot.is_open or not snapshot.stakes:
        return []
    lowest: dict[str, int] = {}
    if any(queue.preemption.by_priority for queue in snapshot.queues.values()):
        for run in snapshot.running.values():
            known = lowest.get(run.gang.queue, run.gang.priority)
            lowest[run.gang.queue] = min(known, run.gang.priority)
    claims = set(snapshot.claims)
    found: list[tuple[tuple[bool, bool, int, int], Gang]] = []
    for reserve in plan.reserved:
        gang = snapshot.waiting.get(reserve.job_id)
        if gang is None or gang.job_id in snapshot.preempted or Reason.LOST_CAPACITY in reserve.reasons:
            continue
        rules = rules_of(snapshot, gang.queue)
        reclaims = rules.reclaim and Reason.LENT in reserve.reasons
        if reclaims or (rules.by_priority and lowest.get(gang.queue, gang.priority) < gang.priority):
            place = (gang.job_id not in claims, not reclaims, -gang.priority, gang.job_id)
            found.append((place, gang))
    return [gang for _, gang in sorted(found, key=lambda each: each[0])]


@dataclass(frozen=True, slots=True)
class _Victim:
    """A running job that may be stopped for a gang."""

    run: Running
    attempt: int
    cost: float
    why: PreemptionReason
    least: int
    """The number of trainers with which it can go on. 0: it cannot go on with fewer."""

    @property
    def instances(self) -> int:
        return sum(part.count for part in held_parts(self.run.gang, self.run.allocation))

    def shrunk(self, trainers: int) -> Running:
        """Return what is left of the gang with fewer trainers: those of the highest ranks are gone."""
        held = self.run.allocation.trainers or self.run.gang.parts[0].count
        nodes = self.run.allocation.nodes
        allocation = replace(self.run.allocation, trainers=trainers, nodes=nodes[:trainers] + nodes[held:])
        return replace(self.run, allocation=allocation)


class _Search:
    """The search for the victims of one gang. They are enough if it fits on one of its flavors."""

    def __init__(
        self, standing: Standing, gang: Gang, flavors: Sequence[str], parts: tuple[Part, ...]
    ) -> None:
        self._standing = standing
        self._gang, self._flavors, self._parts = gang, flavors, parts
        self._needs: Resources = total(parts)
        self._gone: dict[int, tuple[_Victim, int]] = {}
        """The victims so far, with the number of trainers that each keeps. 0: none."""

    def may_succeed(self, victims: Sequence[_Victim]) -> bool:
        """Return whether all victims together are enough. If not, no search finds any, and it costs more."""
        for victim in victims:
            self._standing.count(victim.run, -1)
        is_enough = self._is_enough()
        for victim in victims:
            self._standing.count(victim.run)
        return is_enough

    def run(self, victims: Sequence[_Victim]) -> list[tuple[_Victim, int]] | None:
        """Return the victims that are enough, or None. The standing is as before."""
        for victim in (each for each in victims if each.least):
            if self._is_enough():
                break
            self._set(victim, victim.least)
        for victim in victims:
            if self._is_enough():
                break
            self._set(victim, 0)
        enough = self._is_enough()
        if enough:
            self._put_back()
        chosen = list(self._gone.values())
        for victim, _ in chosen:
            self._restore(victim)  # which empties what the next run begins with
        return chosen if enough else None

    def _put_back(self) -> None:
        """Put back what is not needed: the last first, and elastic ones as large as possible."""
        for victim, kept in reversed(list(self._gone.values())):
            self._restore(victim)
            if self._is_enough():
                continue
            held = victim.run.allocation.trainers or victim.run.gang.parts[0].count
            sizes = range(held - 1, victim.least - 1, -1) if victim.least else ()
            for trainers in sizes:
                self._set(victim, trainers, is_forced=True)
                if self._is_enough():
                    break
            else:
                self._set(victim, kept, is_forced=True)

    def _is_enough(self) -> bool:
        return self._standing.first_fit(self._gang.queue, self._flavors, self._parts, self._needs) is not None

    def _set(self, victim: _Victim, trainers: int, *, is_forced: bool = False) -> None:
        if not is_forced and not self._is_allowed(victim):
            return
        self._restore(victim)
        self._standing.count(victim.run, -1)
        if trainers:
            self._standing.count(victim.shrunk(trainers))
        self._gone[victim.run.gang.job_id] = (victim, trainers)

    def _restore(self, victim: _Victim) -> None:
        _, trainers = self._gone.pop(victim.run.gang.job_id, (None, -1))
        if trainers > 0:
            self._standing.count(victim.shrunk(trainers), -1)
        if trainers >= 0:
            self._standing.count(victim.run)

    def _is_allowed(self, victim: _Victim) -> bool:
        """Return whether the queue of the victim still borrows, if that is the reason."""
        return victim.why is PreemptionReason.PRIORITY or self._standing.borrows(
            victim.run.gang.queue, self._gang.queue, victim.run.allocation.flavor, self._needs
        )


def _victims(snapshot: Snapshot, standing: Standing, gang: Gang, now: float) -> list[Preempt] | None:
    """Return whom to stop for a gang, and count it as started; None: all together are not enough."""
    trainers = fewest_trainers(gang)
    parts = with_trainers(gang.parts, trainers)
    needs = total(parts)
    flavors = [name for name in gang.flavors or standing.flavors if name in standing.flavors]
    if (free := standing.first_fit(gang.queue, flavors, parts, needs)) is not None:
        standing.start(gang, free, trainers)
        return []
    found: list[tuple[float, int, list[tuple[_Victim, int]]]] = []
    for flavor in flavors:
        candidates = _candidates(snapshot, standing, gang, flavor, now)
        search = _Search(standing, gang, flavors, parts)
        for order in _ORDERS if search.may_succeed(candidates) else ():
            chosen = search.run(sorted(candidates, key=order))
            if chosen is not None:
                found.append((sum(victim.cost for victim, _ in chosen), len(chosen), chosen))
    if not found:
        return None
    _, _, chosen = min(found, key=lambda each: each[:2])
    for victim, kept in chosen:
        standing.leave(victim.run, victim.shrunk(kept) if kept else None)
    freed = standing.first_fit(gang.queue, flavors, parts, needs)
    assert freed is not None
    standing.start(gang, freed, trainers)
    return [
        Preempt(
            job_id=victim.run.gang.job_id,
            attempt=victim.attempt,
            by_job=gang.job_id,
            why=victim.why,
            trainers=kept,
        )
        for victim, kept in chosen
    ]


def _candidates(snapshot: Snapshot, standing: Standing, gang: Gang, flavor: str, now: float) -> list[_Victim]:
    rules = rules_of(snapshot, gang.queue)
    needs = total(with_trainers(gang.parts, fewest_trainers(gang)))
    reclaims = rules.reclaim and standing.is_guaranteed(gang.queue, flavor, needs)
    found: list[_Victim] = []
    # If the queue runs as many jobs as it may, those on other flavors are in the way, too.
    for run in standing.stoppable(standing.flavors if standing.is_full(gang.queue) else [flavor]):
        victim, stake = run.gang, snapshot.stakes[run.gang.job_id]
        if rules.by_priority and victim.queue == gang.queue and victim.priority < gang.priority:
            why = PreemptionReason.PRIORITY
        elif (
            reclaims
            and run.allocation.flavor == flavor
            and standing.borrows(victim.queue, gang.queue, flavor, needs)
        ):
            why = PreemptionReason.RECLAIM
        else:
            continue
        if _is_protected(rules_of(snapshot, victim.queue), run, stake, now):
            continue
        held = run.allocation.trainers or (victim.parts[0].count if victim.parts else 0)
        least = min(victim.least, held)
        found.append(
            _Victim(
                run=run,
                attempt=stake.attempt,
                cost=cost(run, stake, now),
                why=why,
                least=least if 0 < least < held else 0,
            )
        )
    return found


def _is_protected(rules: PreemptionRules, run: Running, stake: Stake, now: float) -> bool:
    return (
        stake.preemptions >= rules.max_preemptions
        or now - run.started_at < rules.min_runtime
        or (rules.protected is not None and run.gang.priority >= rules.protected)
    )


def _order(*, own_first: bool, by_instance: bool) -> Callable[[_Victim], tuple[bool, int, float, int]]:
    """Return an order of victims: in the own queue the lowest priority goes first, then what loses least."""

    def key(victim: _Victim) -> tuple[bool, int, float, int]:
        is_own = victim.why is PreemptionReason.PRIORITY
        loss = victim.cost / max(1, victim.instances) if by_instance else victim.cost
        return (
            is_own is not own_first,
            victim.run.gang.priority if is_own else 0,
            loss,
            -victim.run.gang.job_id,
        )

    return key


_ORDERS: Final = tuple(
    _order(own_first=own_first, by_instance=by_instance)
    for own_first in (False, True)
    for by_instance in (False, True)
)
"""Each leads to victims that are enough. Those that lose least in all are taken, since a greedy choice may be
far from the best."""
