"""Finds remedies that let a waiting job start at once.

Each remedy is tried: a plan for the changed snapshot must admit the job, or stop other jobs for it. Changes
that the job's owner can make come first, then the smallest change that an operator can make.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from job_tracker.scheduling.changes import (
    Change,
    Expect,
    FewerTrainers,
    HigherPriority,
    MakeRoom,
    MoreCapacity,
    MoreQuota,
    MoreRunning,
    OtherFlavor,
    Without,
    applied,
    path_of,
)
from job_tracker.scheduling.leaving import leaving_for, without_hung
from job_tracker.scheduling.model import INSTANCES, Gang, Plan, Reason, Snapshot
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.planner import plan as make_plan
from job_tracker.scheduling.shapes import fewest_trainers, total, with_trainers

_TIMES: Final = (1, 2, 4, 8)
"""The multiples of the job's needs that an operator may add.

A multiple may be necessary, since jobs ahead of this job may take a part of the addition.
"""
_FINER: Final = 6
"""The number of halvings in the search for the smallest change with which a remedy works."""
_LEAST_SECONDS: Final = 60.0
"""A shorter expected duration is not proposed."""


class Cure(StrEnum):
    """The kind of change that a remedy makes. The codes are stable: they are in the API."""

    WAIT = "wait"
    """Nothing is changed: the job only has to wait, or no remedy is known."""
    INSTANCES = "instances"
    """The job asks for fewer instances."""
    FLAVOR = "flavor"
    """The job asks for another kind of machine."""
    EXPECTED = "expected"
    """The job says how long it runs."""
    PRIORITY = "priority"
    """The job asks for a higher priority."""
    QUEUE = "queue"
    """An operator changes the quota or `max_running` of the queue or its parents."""
    CAPACITY = "capacity"
    """An operator adds machines and, if necessary, changes the queue."""
    ROOM = "room"
    """The machine of the service gets room for the next launch.

    If necessary, another change of this list is made, too.
    """


@dataclass(frozen=True, slots=True)
class Remedy:
    """The advice for a waiting job, and the changes with which it would start at once."""

    cure: Cure
    text: str
    """The advice, in one or more sentences."""
    changes: tuple[Change, ...] = ()
    is_verified: bool = False
    """Whether a plan with the changes starts the job at once, or stops other jobs for this one."""


def remedy(
    snapshot: Snapshot,
    plan: Plan,
    gang: Gang,
    reason: Reason,
    now: float,
    options: PlannerOptions,
    priorities: Mapping[str, int] | None = None,
    until: float = math.inf,
) -> Remedy:
    """Return the first remedy that lets the job start at once. If there is none, advise to wait.

    `plan` is the plan for the same snapshot. `priorities` maps the name of each priority class that a job may
    ask for to its priority. None: any priority is allowed. With one flavor, at most about 36 plans are made;
    each further flavor adds at most 7. After the time `until` of the monotonic clock, only the last remedy is
    tried, which is the largest change.
    """
    if _admits(plan, gang):
        return Remedy(Cure.WAIT, "Wait: the next pass starts it.", (), is_verified=True)
    if _stops_others(plan, gang):
        return Remedy(Cure.WAIT, "Wait: the next pass stops other jobs for it.", (), is_verified=True)
    if leaving := leaving_for(without_hung(snapshot, now), gang.job_id):
        return Remedy(
            Cure.WAIT,
            f"Wait until {'the job that is' if len(leaving) == 1 else 'the jobs that are'} being stopped for "
            f"it {'has' if len(leaving) == 1 else 'have'} ended.",
            is_verified=_starts(snapshot, gang, (Without(leaving),), now, options),
        )
    if reason is Reason.UNKNOWN_CAPACITY:
        return Remedy(Cure.WAIT, "Wait until the machines have been read. Errors are in the service's log.")
    if not snapshot.is_open:
        return _closed(snapshot, gang, reason, now, options, priorities, until)
    candidates = _candidates(snapshot, plan, gang, reason, now, priorities)
    for candidate in candidates:
        cure, changes = candidate if time.monotonic() < until else (candidate, *candidates)[-1]
        if _starts(snapshot, gang, changes, now, options):

            def works(smaller: Sequence[Change]) -> bool:
                return time.monotonic() < until and _starts(snapshot, gang, smaller, now, options)

            changes = _smallest(snapshot, gang, changes, works)
            text = _sentence(changes)
            if snapshot.stakes and not _admits(
                make_plan(applied(snapshot, gang, changes), now, options), gang
            ):
                text += " Then other jobs are stopped for it."
            return Remedy(cure, text, changes, is_verified=True)
    return Remedy(Cure.WAIT, "Wait until running jobs end.", ())


def _closed(
    snapshot: Snapshot,
    gang: Gang,
    reason: Reason,
    now: float,
    options: PlannerOptions,
    priorities: Mapping[str, int] | None,
    until: float,
) -> Remedy:
    """Return the remedy in the case that the machine of the service has no room for launches."""
    room = MakeRoom()
    opened = room.of(snapshot, gang)
    decided = make_plan(opened, now, options)
    if _admits(decided, gang):
        return Remedy(Cure.ROOM, _sentence((room,)), (room,), is_verified=True)
    then = remedy(opened, decided, gang, reason, now, options, priorities, until)
    changes = (room, *then.changes)
    return Remedy(Cure.ROOM, _sentence(changes), changes, is_verified=then.is_verified)


def _admits(plan: Plan, gang: Gang) -> bool:
    return any(admit.job_id == gang.job_id for admit in plan.admitted)


def _stops_others(plan: Plan, gang: Gang) -> bool:
    return any(each.by_job == gang.job_id for each in plan.preempted)


def _starts(
    snapshot: Snapshot, gang: Gang, changes: Sequence[Change], now: float, options: PlannerOptions
) -> bool:
    decided = make_plan(applied(snapshot, gang, changes), now, options)
    return _admits(decided, gang) or _stops_others(decided, gang)


def _smallest(
    snapshot: Snapshot, gang: Gang, changes: tuple[Change, ...], works: Callable[[Sequence[Change]], bool]
) -> tuple[Change, ...]:
    """Return the smallest change of the same kind that works, or one near it.

    `changes` are known to work. They are returned if no smaller change can be searched for.
    """
    least = fewest_trainers(gang)
    if len(changes) != 1 or len(gang.parts) != 1:
        return changes
    change = changes[0]
    if isinstance(change, FewerTrainers):
        fewer = partial(FewerTrainers, asked=change.asked)
        return (fewer(_nearest(change.trainers, least, lambda n: works((fewer(n),)))),)
    if isinstance(change, MoreCapacity) and not change.for_others and least and INSTANCES in change.more:
        flavor = next(each for each in snapshot.flavors if each.name == change.flavor)

        def for_trainers(number: int) -> MoreCapacity:
            return MoreCapacity.of_needs(flavor, with_trainers(gang.parts, number), 1)

        enough = change.more[INSTANCES]
        too_few = 0 if enough == least else enough // 2
        return (for_trainers(_nearest(enough, too_few, lambda n: works((for_trainers(n),)))),)
    return changes


def _nearest(good: int, bad: int, works: Callable[[int], bool]) -> int:
    """Return the number nearest to `bad` that works, or the nearest found in _FINER halvings.

    `good` works, `bad` does not.
    """
    for _ in range(_FINER):
        if abs(good - bad) <= 1:
            break
        middle = (good + bad) // 2
        good, bad = (middle, bad) if works(middle) else (good, middle)
    return good


def _sentence(changes: Sequence[Change]) -> str:
    return " ".join(change.text for change in changes)


def _candidates(
    snapshot: Snapshot,
    plan: Plan,
    gang: Gang,
    reason: Reason,
    now: float,
    priorities: Mapping[str, int] | None,
) -> Iterator[tuple[Cure, tuple[Change, ...]]]:
    if reason is not Reason.MAX_RUNNING:
        for smaller in _smaller(gang):
            yield Cure.INSTANCES, (smaller,)
    for flavor in snapshot.flavors if gang.flavors else ():
        if flavor.name not in gang.flavors:
            yield Cure.FLAVOR, (OtherFlavor(flavor.name),)
    if gang.expected is None:
        starts = [each.promise.at - now for each in plan.reserved if each.job_id != gang.job_id]
        if (gap := min(starts, default=0.0)) >= _LEAST_SECONDS and gap < float("inf"):
            yield Cure.EXPECTED, (Expect(gap),)
    for number, name in _higher(snapshot, gang, priorities):
        yield Cure.PRIORITY, (HigherPriority(number, name),)
    yield from _of_operators(snapshot, gang, reason)


def _smaller(gang: Gang) -> Iterator[FewerTrainers]:
    asked, least = (gang.parts[0].count if gang.parts else 0), fewest_trainers(gang)
    for trainers in sorted({least * share // 4 for share in (1, 2, 3)} | {1}, reverse=True):
        if 0 < trainers < least:
            yield FewerTrainers(trainers, asked)


def _higher(
    snapshot: Snapshot, gang: Gang, priorities: Mapping[str, int] | None
) -> Iterator[tuple[int, str]]:
    bounds = [node.max_priority for node in path_of(snapshot, gang.queue) if node.max_priority is not None]
    first = next(iter(snapshot.waiting.in_order(gang.queue)), gang)
    wanted = max(gang.priority, first.priority) + 1
    if priorities is None:
        named = {wanted: str(wanted)}
    else:
        named = {number: name for name, number in priorities.items() if number > gang.priority}
    allowed = [number for number in sorted(named) if all(number <= bound for bound in bounds)]
    # Take the lowest allowed priority with which the job goes before all other jobs of the queue. If there is
    # none, take the highest allowed priority.
    for number in [each for each in allowed if each >= wanted][:1] or allowed[-1:]:
        yield number, named[number]


def _of_operators(
    snapshot: Snapshot, gang: Gang, reason: Reason
) -> Iterator[tuple[Cure, tuple[Change, ...]]]:
    least = with_trainers(gang.parts, fewest_trainers(gang))
    needs = total(least)
    nodes = [node.name for node in path_of(snapshot, gang.queue)]
    running = [n for n in nodes if snapshot.queues[n].max_running is not None]
    limited = [n for n in nodes if snapshot.queues[n].limits]
    queue_alone = reason not in (Reason.CAPACITY, Reason.FRAGMENTED, Reason.LOST_CAPACITY)
    for times in _TIMES if queue_alone else ():
        # The last try removes max_running: jobs ahead of this job may use up any number that is added.
        running_more = None if times == _TIMES[-1] else times
        more_running: tuple[Change, ...] = tuple(MoreRunning(name, running_more) for name in running)
        more_quota: tuple[Change, ...] = tuple(MoreQuota(name, needs, times) for name in limited)
        for changes in (more_running, more_quota, (*more_running, *more_quota)):
            if changes:
                yield Cure.QUEUE, changes
    flavors = [each for each in snapshot.flavors if not gang.flavors or each.name in gang.flavors]
    freed: tuple[Change, ...] = (
        *(MoreRunning(name, None) for name in running),
        *(MoreQuota(name, None) for name in limited),
    )
    for flavor in flavors:
        for times in _TIMES:
            yield Cure.CAPACITY, (MoreCapacity.of_needs(flavor, least, times),)
    for flavor in flavors:
        whole = MoreCapacity.for_all(snapshot, flavor, least)
        if freed:
            yield Cure.CAPACITY, (*freed, MoreCapacity.of_needs(flavor, least, 1))
        yield Cure.CAPACITY, (whole,)
        if freed:
            yield Cure.CAPACITY, (*freed, whole)
