"""Chooses the running jobs that are stopped for waiting jobs: the jobs that lose least.

All functions are pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from job_tracker.scheduling.model import (
    Gang,
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
from job_tracker.scheduling.running import trainers_of, used_by
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.standing import Standing
from job_tracker.scheduling.victims import Search, Victim, cost

_MOST_JOBS: Final = 8
"""The largest number of waiting jobs for which one pass stops others. The next pass continues."""
_MOST_QUEUES: Final = 8
"""The largest number of queues for whose jobs one pass searches victims."""
PATIENCE: Final = 3.0
"""A job of a higher priority waits if the victims lose more than this number of times its own wait.

Both are counted in instance-seconds. benchmarks.preemption measures this rule.
"""
Order: TypeAlias = Callable[[Victim], tuple[float, ...]]
"""The key by which victims are sorted: the first are stopped first."""


def least_lost(*, own_first: bool, by_instance: bool) -> Order:
    """Return an order of victims. In the own queue, the lowest priority comes first, then the least loss."""

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
"""The orders in which victims are searched.

A search is made in each order, and the result with the least total loss is used, since a single greedy search
may be far from the best.
"""


def preemptions(
    snapshot: Snapshot,
    plan: Plan,
    now: float,
    orders: Sequence[Order] = ORDERS,
    patience: float = PATIENCE,
) -> tuple[Preempt, ...]:
    """Return the running jobs that are stopped for waiting jobs which the plan does not admit.

    In each queue, jobs are stopped for the first waiting job that may have others stopped, then for the next.
    If stopping all of them is not enough for a waiting job, or if it costs less to wait for the job's
    promised start, none are stopped for the jobs behind it. With many queues, a pass considers the first
    queues in the order, and a few of the others in turn.
    """
    wanted = _wanted(snapshot, plan, now)
    if not wanted:
        return ()
    stoppable = _Stoppable(snapshot, now)
    if not stoppable:
        return ()
    standing = Standing(snapshot, plan, now)
    promised = {each.job_id: each.promise.at for each in plan.reserved}
    found: list[Preempt] = []
    closed: set[str] = set()
    served = 0
    for gang in wanted:
        if gang.queue in closed or gang.job_id in standing.started:
            continue
        most_lost = patience * (promised[gang.job_id] - now) * _instances(gang)
        victims = _victims(snapshot, standing, stoppable, gang, orders, most_lost)
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


def _wanted(snapshot: Snapshot, plan: Plan, now: float) -> list[Gang]:
    """Return the waiting gangs for which others may be stopped.

    Gangs within guaranteed quotas come first.
    """
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
    wanted = [gang for _, gang in sorted(found, key=lambda each: each[0])]
    queues = list(dict.fromkeys(gang.queue for gang in wanted))
    if len(queues) <= _MOST_QUEUES:
        return wanted
    first, others = queues[: _MOST_QUEUES // 2], queues[_MOST_QUEUES // 2 :]
    turn = int(now) % len(others)
    chosen = {*first, *(others[turn:] + others[:turn])[: _MOST_QUEUES - len(first)]}
    return [gang for gang in wanted if gang.queue in chosen]


class _Stoppable:
    """The running jobs that may be stopped, by flavor and queue.

    Protected jobs, and jobs that are already being stopped, are left out.
    """

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._runs: dict[str, dict[str, dict[int, Running]]] = {each.name: {} for each in snapshot.flavors}
        rules = {name: rules_of(snapshot, name) for name in snapshot.queues}
        self._number = 0
        self._stakes, self._now = snapshot.stakes, now
        self._costs: dict[int, float] = {}
        for job_id, run in snapshot.running.items():
            queue, stake = run.gang.queue, snapshot.stakes.get(job_id)
            on_flavor = self._runs.get(run.allocation.flavor)
            if stake is None or stake.is_leaving or on_flavor is None:
                continue
            if not is_protected(rules.get(queue) or PreemptionRules(), run, stake, now):
                on_flavor.setdefault(queue, {})[job_id] = run
                self._number += 1

    def __bool__(self) -> bool:
        return self._number > 0

    def on(self, flavors: Iterable[str]) -> Iterator[tuple[str, str, Collection[Running]]]:
        """Yield each flavor and queue with the jobs that run there."""
        for flavor in flavors:
            for queue, runs in self._runs[flavor].items():
                yield flavor, queue, runs.values()

    def cost(self, run: Running) -> float:
        """Return the loss of a job.

        The loss is worked out once, and is the same for all gangs for which the job may be stopped.
        """
        job_id = run.gang.job_id
        known = self._costs.get(job_id)
        if known is None:
            known = self._costs[job_id] = cost(run, self._stakes[job_id], self._now)
        return known

    def remove(self, run: Running) -> None:
        """Leave out a job that is stopped now."""
        del self._runs[run.allocation.flavor][run.gang.queue][run.gang.job_id]


def _victims(
    snapshot: Snapshot,
    standing: Standing,
    stoppable: _Stoppable,
    gang: Gang,
    orders: Sequence[Order],
    most_lost: float,
) -> list[Preempt] | None:
    """Return the jobs to stop for a gang, and count the gang as started.

    None: stopping all jobs is not enough, or they lose more than `most_lost`. This limit does not apply to a
    quota that is taken back.
    """
    trainers = fewest_trainers(gang)
    parts = with_trainers(gang.parts, trainers)
    needs = total(parts)
    flavors = standing.flavors_of(gang)
    if (free := standing.first_fit(gang.queue, flavors, parts, needs)) is not None:
        standing.start(gang, free, trainers)
        return []
    found: list[tuple[float, int, list[tuple[Victim, int]]]] = []
    for flavor in flavors:
        candidates = _candidates(snapshot, standing, stoppable, gang, flavor)
        search = Search(standing, gang, flavors, parts)
        for order in orders if search.may_succeed(candidates) else ():
            chosen = search.run(sorted(candidates, key=order))
            if chosen is not None:
                found.append((sum(victim.cost for victim, _ in chosen), len(chosen), chosen))
    if not found:
        return None
    loss, _, chosen = min(found, key=lambda each: each[:2])
    if loss > most_lost and all(victim.why is PreemptionReason.PRIORITY for victim, _ in chosen):
        return None
    for victim, kept in chosen:
        standing.leave(victim.run, victim.shrunk(kept) if kept else None)
        stoppable.remove(victim.run)
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


def _instances(gang: Gang) -> int:
    """Return the smallest number of instances with which a gang starts."""
    return sum(part.count for part in with_trainers(gang.parts, fewest_trainers(gang)))


def _candidates(
    snapshot: Snapshot, standing: Standing, stoppable: _Stoppable, gang: Gang, flavor: str
) -> list[Victim]:
    rules = rules_of(snapshot, gang.queue)
    needs = total(with_trainers(gang.parts, fewest_trainers(gang)))
    reclaims = rules.reclaim and standing.is_guaranteed(gang.queue, flavor, needs)
    found: list[Victim] = []
    # If the queue already runs its largest number of jobs, its jobs on other flavors are in the way, too.
    flavors = standing.flavors if standing.is_full(gang.queue) else [flavor]
    for at, queue, runs in stoppable.on(flavors):
        is_own = rules.by_priority and queue == gang.queue
        borrows = reclaims and at == flavor and standing.borrows(queue, gang.queue, flavor, needs)
        for run in runs if is_own or borrows else ():
            if is_own and run.gang.priority < gang.priority:
                why = PreemptionReason.PRIORITY
            elif borrows and standing.borrows(queue, gang.queue, flavor, _shared(needs, run)):
                why = PreemptionReason.RECLAIM
            else:
                continue
            stake, held = snapshot.stakes[run.gang.job_id], trainers_of(run)
            least = min(run.gang.least, held)
            found.append(
                Victim(
                    run=run,
                    attempt=stake.attempt,
                    cost=stoppable.cost(run),
                    why=why,
                    least=least if 0 < least < held else 0,
                )
            )
    return found


def _shared(needs: Resources, run: Running) -> Resources:
    """Return the needs, restricted to the resources that a running job holds."""
    held = used_by(run)
    return {name: amount for name, amount in needs.items() if held.get(name)}


def is_protected(rules: PreemptionRules, run: Running, stake: Stake, now: float) -> bool:
    """Return whether the rules of its queue forbid stopping a job for others."""
    return (
        stake.preemptions >= rules.max_preemptions
        or now - run.started_at < rules.min_runtime
        or (rules.protected is not None and run.gang.priority >= rules.protected)
    )
