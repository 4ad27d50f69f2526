"""Chooses the running jobs that are stopped for waiting jobs: the jobs that lose least.

All functions are pure.
"""

from collections.abc import Callable, Collection, Sequence
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
from job_tracker.scheduling.running import running_gangs, trainers_of, used_by
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers
from job_tracker.scheduling.standing import Standing
from job_tracker.scheduling.victims import Search, Victim, cost

_MOST_JOBS: Final = 8
"""The largest number of waiting jobs for which one pass stops others. The next pass continues."""
_MOST_QUEUES: Final = 8
"""The largest number of queues whose waiting jobs are considered in one pass."""
PATIENCE: Final = 3.0
"""The largest allowed ratio of the loss of the stopped jobs (the victims) to the wait of the job with the
higher priority.

If the ratio would be larger, no job is stopped, and the job with the higher priority waits. Loss and wait are
counted in instance-seconds. benchmarks.preemption measures this rule.
"""
Order: TypeAlias = Callable[[Victim], tuple[float, ...]]
"""Returns the sort key of a victim. Victims are tried in the order of their keys."""


def least_lost(*, own_first: bool, by_instance: bool) -> Order:
    """Return the order in which victims are tried: those that lose least first.

    Among jobs of the waiting job's own queue, the lowest priority comes first. With `own_first`, these jobs
    come before all others, otherwise after them. With `by_instance`, the loss per instance counts.
    """

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

    The waiting jobs for which others may be stopped are considered one after the other, in the order of
    `_wanted`. If too few jobs may be stopped for a waiting job, or if they would lose too much (`patience`;
    see PATIENCE), no job is stopped for it or for later jobs of its queue. If more than _MOST_QUEUES queues
    have such waiting jobs, a pass considers only _MOST_QUEUES of these queues. Half of them are the queues
    whose jobs come first, and the other half change from pass to pass.
    """
    wanted = _wanted(snapshot, plan, now)
    if not wanted:
        return ()
    stoppable = _Stoppable(snapshot, now)
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
    """Return the preemption rules of a queue; the default rules for an unknown queue."""
    known = snapshot.queues.get(queue)
    return known.preemption if known is not None else PreemptionRules()


def _wanted(snapshot: Snapshot, plan: Plan, now: float) -> list[Gang]:
    """Return the waiting gangs for which other gangs may be stopped.

    Gangs with claims, for which jobs were already stopped, come first, then gangs within guaranteed quotas.
    """
    if not snapshot.is_open or not snapshot.stakes:
        return []
    lowest: dict[str, int] = {}
    if any(queue.preemption.by_priority for queue in snapshot.queues.values()):
        for name, by_flavor in running_gangs(snapshot.running).held().items():
            lowest[name] = min(priority for each in by_flavor.values() for priority in each.priorities)
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
    """The running jobs that may be stopped, by queue and flavor.

    Protected jobs, and jobs that are already being stopped, are left out.
    """

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._snapshot, self._now = snapshot, now
        self._held = running_gangs(snapshot.running).held()
        self._runs: dict[tuple[str, str], dict[int, Running]] = {}
        """The jobs by queue and flavor. An entry is made when it is first needed."""
        self._costs: dict[int, float] = {}

    def on(self, queue: str, flavor: str) -> Collection[Running]:
        """Return the jobs of a queue on a flavor."""
        known = self._runs.get((queue, flavor))
        if known is None:
            rules, stakes = rules_of(self._snapshot, queue), self._snapshot.stakes
            there = self._held.get(queue, {}).get(flavor)
            known = self._runs[queue, flavor] = {
                job_id: run
                for job_id, run in (there.runs.items() if there is not None else ())
                if (stake := stakes.get(job_id)) is not None
                and not stake.is_leaving
                and not is_protected(rules, run, stake, self._now)
            }
        return known.values()

    def queues_on(self, flavor: str) -> list[str]:
        """Return the queues that run jobs on a flavor."""
        return [queue for queue, by_flavor in self._held.items() if flavor in by_flavor]

    def cost(self, run: Running) -> float:
        """Return the loss of a job.

        The loss is computed once, since it is the same for all gangs for which the job may be stopped.
        """
        job_id = run.gang.job_id
        known = self._costs.get(job_id)
        if known is None:
            known = self._costs[job_id] = cost(run, self._snapshot.stakes[job_id], self._now)
        return known

    def remove(self, run: Running) -> None:
        """Leave out a job that is stopped now."""
        del self._runs[run.gang.queue, run.allocation.flavor][run.gang.job_id]


def _victims(
    snapshot: Snapshot,
    standing: Standing,
    stoppable: _Stoppable,
    gang: Gang,
    orders: Sequence[Order],
    most_lost: float,
) -> list[Preempt] | None:
    """Return the jobs to stop for a gang, and count the gang as started in `standing`.

    Empty: the gang fits without a stop. None: even all stoppable jobs are not enough, or the jobs to stop
    lose more than `most_lost`. This limit does not apply if at least one of these jobs is stopped because its
    queue borrows.
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
    # If the queue already runs its largest number of jobs, a stop of its jobs on other flavors helps, too.
    searched = standing.flavors if standing.is_full(gang.queue) else [flavor]
    for at, queue in ((name, queue) for name in searched for queue in stoppable.queues_on(name)):
        is_own = rules.by_priority and queue == gang.queue
        borrows = reclaims and at == flavor and standing.borrows(queue, gang.queue, flavor, needs)
        for run in stoppable.on(queue, at) if is_own or borrows else ():
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
    """Return the part of `needs` for the resources that the running job holds."""
    held = used_by(run)
    return {name: amount for name, amount in needs.items() if held.get(name)}


def is_protected(rules: PreemptionRules, run: Running, stake: Stake, now: float) -> bool:
    """Return whether `rules`, the rules of the running job's queue, forbid stopping it for other jobs."""
    return (
        stake.preemptions >= rules.max_preemptions
        or now - run.started_at < rules.min_runtime
        or (rules.protected is not None and run.gang.priority >= rules.protected)
    )
