"""Which running jobs are stopped for waiting ones: those that lose least. It is pure."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from job_tracker.scheduling.model import (
    Gang,
    Plan,
    Preempt,
    PreemptionReason,
    PreemptionRules,
    Reason,
    Running,
    Snapshot,
    Stake,
)
from job_tracker.scheduling.running import trainers_of
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.standing import Standing
from job_tracker.scheduling.victims import Search, Victim, cost

_MOST_JOBS: Final = 16
"""For so many waiting jobs, others are stopped in one pass."""
Order: TypeAlias = Callable[[Victim], tuple[float, ...]]
"""The key by which victims are sorted: the first are stopped first."""


def least_lost(*, own_first: bool, by_instance: bool) -> Order:
    """Return an order of victims: in the own queue the lowest priority goes first, then what loses least."""

    def key(victim: Victim) -> tuple[float, ...]:
        is_own = victim.why is PreemptionReason.PRIORITY
        loss = victim.cost / max(1, victim.instances) if by_instance else victim.cost
        return (
            is_own is not own_first,
            victim.run.gang.priority if is_own else 0,
            loss,
            -victim.run.gang.job_id,
        )

    return key


ORDERS: Final = tuple(
    least_lost(own_first=own_first, by_instance=by_instance)
    for own_first in (False, True)
    for by_instance in (False, True)
)
"""Each leads to victims that are enough. Those that lose least in all are taken, since a greedy choice may be
far from the best."""


def preemptions(
    snapshot: Snapshot, plan: Plan, now: float, orders: Sequence[Order] = ORDERS
) -> tuple[Preempt, ...]:
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
        victims = _victims(snapshot, standing, gang, now, orders)
        if victims is None:
            closed.add(gang.queue)
            continue
        found += victims
        served += bool(victims)
        if served == _MOST_JOBS:
            break
    return tuple(found)


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


def _victims(
    snapshot: Snapshot, standing: Standing, gang: Gang, now: float, orders: Sequence[Order]
) -> list[Preempt] | None:
    """Return whom to stop for a gang, and count it as started; None: all together are not enough."""
    trainers = fewest_trainers(gang)
    parts = with_trainers(gang.parts, trainers)
    needs = total(parts)
    flavors = standing.flavors_of(gang)
    if (free := standing.first_fit(gang.queue, flavors, parts, needs)) is not None:
        standing.start(gang, free, trainers)
        return []
    found: list[tuple[float, int, list[tuple[Victim, int]]]] = []
    for flavor in flavors:
        candidates = _candidates(snapshot, standing, gang, flavor, now)
        search = Search(standing, gang, flavors, parts)
        for order in orders if search.may_succeed(candidates) else ():
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


def _candidates(snapshot: Snapshot, standing: Standing, gang: Gang, flavor: str, now: float) -> list[Victim]:
    rules = rules_of(snapshot, gang.queue)
    needs = total(with_trainers(gang.parts, fewest_trainers(gang)))
    reclaims = rules.reclaim and standing.is_guaranteed(gang.queue, flavor, needs)
    found: list[Victim] = []
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
        if is_protected(rules_of(snapshot, victim.queue), run, stake, now):
            continue
        held = trainers_of(run)
        least = min(victim.least, held)
        found.append(
            Victim(
                run=run,
                attempt=stake.attempt,
                cost=cost(run, stake, now),
                why=why,
                least=least if 0 < least < held else 0,
            )
        )
    return found


def is_protected(rules: PreemptionRules, run: Running, stake: Stake, now: float) -> bool:
    """Return whether the rules of its queue forbid to stop a job for others."""
    return (
        stake.preemptions >= rules.max_preemptions
        or now - run.started_at < rules.min_runtime
        or (rules.protected is not None and run.gang.priority >= rules.protected)
    )
