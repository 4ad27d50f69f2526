"""When waiting jobs are expected to start: what runs ends, and what waits starts in order.

No backfill is assumed, and quotas and single machines are left out: the estimates are made in one go.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from job_tracker.scheduling.model import INSTANCES, Expected, Gang, Plan, Running, Snapshot
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.order import Order
from job_tracker.scheduling.running import running_gangs
from job_tracker.scheduling.shapes import fewest_trainers, held_parts, total, with_trainers
from job_tracker.scheduling.shares import Shares


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected start of a job, in Unix seconds."""

    median: float
    high: float
    """The start if all jobs run as long as the high estimates of their durations."""
    is_assumed: bool
    """Whether it rests on an assumed length, since some jobs have no expected one."""


def estimates(
    snapshot: Snapshot, plan: Plan, now: float, options: PlannerOptions, until: int | None = None
) -> dict[int, Estimate]:
    """Return the expected starts of the waiting jobs, in order, up to a job or 10,000 of them."""
    order = _in_order(snapshot, plan, now, options, until)
    assumed = any(gang.expected is None for gang in order) or any(
        run.gang.expected is None for run in snapshot.running.values()
    )
    medians = _simulate(snapshot, order, now, options, high=False)
    highs = _simulate(snapshot, order, now, options, high=True)
    return {
        job_id: Estimate(median, max(median, highs[job_id]), assumed) for job_id, median in medians.items()
    }


def _in_order(
    snapshot: Snapshot, plan: Plan, now: float, options: PlannerOptions, until: int | None
) -> list[Gang]:
    shares = Shares(
        *(snapshot.flavors, snapshot.queues, snapshot.usage, now, options.half_life),
        *(running_gangs(snapshot.running).held(), options.entry_penalty),
    )
    default = snapshot.flavors[0].name if snapshot.flavors else ""
    admitted = {admit.job_id for admit in plan.admitted}
    gangs: list[Gang] = []
    for gang in Order(snapshot, shares):
        if len(gangs) >= 10_000 and until is None:
            break
        if gang.job_id not in admitted:
            gangs.append(gang)
        flavor = gang.flavors[0] if gang.flavors else default
        shares.charge(gang.queue, flavor, total(gang.parts), options.entry_penalty)
        if gang.job_id == until:
            break
    return gangs


def _simulate(
    snapshot: Snapshot, order: Iterable[Gang], now: float, options: PlannerOptions, *, high: bool
) -> dict[int, float]:
    free = {flavor.name: dict(flavor.capacity) for flavor in snapshot.flavors}
    ends: dict[str, list[tuple[float, int, dict[str, int]]]] = {name: [] for name in free}
    for number, run in enumerate(snapshot.running.values()):
        name = run.allocation.flavor
        if name in free:
            needs = total(held_parts(run.gang, run.allocation))
            _add(free[name], needs, -1)
            ends[name].append((_end(run, now, options, high=high), -number - 1, needs))
    for heap in ends.values():
        heapq.heapify(heap)
    clocks = dict.fromkeys(free, now)
    starts: dict[int, float] = {}
    for gang in order:
        names = [name for name in gang.flavors or tuple(free) if name in free]
        needs = total(with_trainers(gang.parts, fewest_trainers(gang)))
        length = _length(gang.expected, options, high=high)
        for name in sorted(names, key=lambda name: (clocks[name], -free[name].get(INSTANCES, 0))):
            at = _release(free[name], ends[name], needs, clocks[name])
            if at is None:
                continue
            clocks[name] = at
            _add(free[name], needs, -1)
            heapq.heappush(ends[name], (at + length, gang.job_id, needs))
            starts[gang.job_id] = at
            break
    return starts


def _release(
    free: dict[str, int], ends: list[tuple[float, int, dict[str, int]]], needs: dict[str, int], clock: float
) -> float | None:
    """Let jobs end until the needs are free, and return when that is. None: not even when all have ended."""
    taken: list[tuple[float, int, dict[str, int]]] = []
    while any(free.get(name, amount) < amount for name, amount in needs.items()):
        if not ends:
            for entry in taken:
                _add(free, entry[2], -1)
            ends.extend(taken)
            heapq.heapify(ends)
            return None
        entry = heapq.heappop(ends)
        taken.append(entry)
        clock = max(clock, entry[0])
        _add(free, entry[2], 1)
    return clock


def _add(free: dict[str, int], needs: dict[str, int], sign: int) -> None:
    for name, amount in needs.items():
        if name in free:
            free[name] += sign * amount


def _length(expected: Expected | None, options: PlannerOptions, *, high: bool) -> float:
    if expected is None:
        return options.default_duration * (3 if high else 1)
    return max(1.0, expected.high if high else expected.median)


def _end(run: Running, now: float, options: PlannerOptions, *, high: bool) -> float:
    length = _length(run.gang.expected, options, high=high)
    while run.started_at + length <= now:
        length *= 2
    return run.started_at + length
