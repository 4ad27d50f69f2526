"""Explains why jobs wait, when they may start, which other jobs hold the resources, and what would help."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from job_tracker.scheduling.changes import path_of
from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.estimates import Estimate, estimates
from job_tracker.scheduling.model import Gang, Plan, Promise, Queue, Reason, Reserve, Snapshot
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.remedies import Cure, Remedy, remedy
from job_tracker.scheduling.waits import WaitRule

_NOT_AS_IT_IS = frozenset({Reason.LOST_CAPACITY, Reason.UNKNOWN_CAPACITY, Reason.ROOM})
"""A job that waits for one of these reasons starts only after a change that cannot be predicted."""

_OF_CLUSTER = Remedy(Cure.WAIT, "Wait: the cluster's own queue decides when it starts.")


@dataclass(frozen=True)
class Situation:
    """A snapshot at one time, the plan for it, and the learned rule for waits."""

    snapshot: Snapshot
    plan: Plan
    now: float
    rule: WaitRule = WaitRule()  # noqa: RUF009  # it never changes

    def reasons(self, gang: Gang) -> tuple[Reason, ...]:
        """Return the reasons why a waiting gang waits, the decisive reason first."""
        if gang.job_id in self._admitted:
            return (Reason.PENDING,)
        reserve = self._reserved.get(gang.job_id)
        reasons = self._behind(gang) if reserve is None else reserve.reasons
        if self._is_closed(gang.queue):
            reasons = (Reason.MAX_RUNNING, *(each for each in reasons if each is not Reason.MAX_RUNNING))
        return reasons

    def reserved(self, job_id: int) -> Reserve | None:
        """Return the reservation of a job; None if it has none."""
        return self._reserved.get(job_id)

    def estimate(self, job_id: int) -> Estimate | None:
        """Return when a job is expected to start.

        None: the job does not wait, or it can start only after an unpredictable change (for example, of the
        capacity), or the cluster's own queue decides when it starts.
        """
        return self.estimates.get(job_id)

    @cached_property
    def estimates(self) -> dict[int, Estimate]:
        """The expected starts by job.

        Jobs that can start only after an unpredictable change (for example, of the capacity) are left out. If
        the cluster's own queue decides when jobs start, all jobs are left out.
        """
        if self.plan.is_delegated:
            return {}
        found = estimates(self.snapshot, self.now, self.rule, self._promises)
        stuck = {name for name in self.snapshot.waiting.queues() if self._is_closed(name)}
        for job_id in list(found):
            gang = self.snapshot.waiting.get(job_id)
            reserve = self._reserved.get(job_id)
            lost = reserve is not None and reserve.reasons[0] in _NOT_AS_IT_IS
            if lost or (gang is not None and gang.queue in stuck):
                del found[job_id]
        return found

    @cached_property
    def _admitted(self) -> frozenset[int]:
        return frozenset(admit.job_id for admit in self.plan.admitted)

    @cached_property
    def _reserved(self) -> dict[int, Reserve]:
        return {reserve.job_id: reserve for reserve in self.plan.reserved}

    @cached_property
    def _promises(self) -> dict[int, Promise]:
        return {reserve.job_id: reserve.promise for reserve in self.plan.reserved}

    @cached_property
    def _first_reasons(self) -> dict[str, Reason]:
        """For each queue, the decisive reason of its first waiting job with a reservation."""
        found: dict[str, Reason] = {}
        for reserve in self.plan.reserved:
            gang = self.snapshot.waiting.get(reserve.job_id)
            if gang is not None:
                found.setdefault(gang.queue, reserve.reasons[0])
        return found

    def _behind(self, gang: Gang) -> tuple[Reason, ...]:
        """Return the reasons of a gang without a reservation, which waits behind the gangs that have one."""
        if (first := self._first_reasons.get(gang.queue)) is not None:
            return (Reason.ORDER, first)
        if self.plan.reserved:
            return (Reason.SHARE, self.plan.reserved[0].reasons[0])
        return (Reason.PENDING,)

    def _is_closed(self, queue: str) -> bool:
        return any(node.max_running == 0 for node in path_of(self.snapshot, queue))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The known facts about a waiting job."""

    reasons: tuple[Reason, ...]
    """The reasons, the decisive one first."""
    holders: tuple[int, ...]
    """The running jobs that hold resources which the job needs."""
    estimate: Estimate | None
    """The expected start. None: the job can start only after an unpredictable change (for example, of the
    capacity), or the cluster's own queue decides when it starts."""
    remedy: Remedy
    reserve: Reserve | None = None
    """The job's reservation; None if it has none."""


def explain(
    situation: Situation,
    job_id: int,
    options: PlannerOptions | None = None,
    priorities: Mapping[str, int] | None = None,
    until: float = math.inf,
) -> Explanation:
    """Return the known facts about why a job waits. Raises KeyError if it does not wait.

    `priorities` maps the name of each priority class that jobs may ask for to its priority. None: any
    priority is allowed. To find a remedy, changes of the job are tried, small ones first. After the time
    `until` of the monotonic clock, only the largest change is still tried.
    """
    snapshot = situation.snapshot
    gang = snapshot.waiting.get(job_id)
    if gang is None:
        raise KeyError(f"job {job_id} does not wait")
    reasons = situation.reasons(gang)
    if situation.plan.is_delegated:
        return Explanation(reasons=reasons, holders=(), estimate=None, remedy=_OF_CLUSTER)
    if reasons[0] is not Reason.PENDING and fits_ever(snapshot.queues, snapshot.flavors, gang) is not None:
        reasons = (Reason.LOST_CAPACITY, *(each for each in reasons if each is not Reason.LOST_CAPACITY))
    found = remedy(
        snapshot,
        situation.plan,
        gang,
        reasons[0],
        situation.now,
        options or PlannerOptions(),
        priorities,
        until,
    )
    return Explanation(
        reasons=reasons,
        holders=tuple(_holders(snapshot, gang, reasons[0])),
        estimate=None if reasons[0] in _NOT_AS_IT_IS else situation.estimate(job_id),
        remedy=found,
        reserve=situation.reserved(job_id),
    )


def _holders(snapshot: Snapshot, gang: Gang, reason: Reason) -> Iterator[int]:
    """Yield the running jobs that hold resources which the gang needs.

    Depending on `reason`, these are jobs of all queues, or only of the gang's queue and of queues that share
    a parent with it.
    """
    above = path_of(snapshot, gang.queue)
    nodes = {node.name for node in above}
    # If borrowing is bounded, the quota itself is the limit. If borrowing is unbounded, the quota is a limit
    # only because all machines are in use.
    own = reason is Reason.MAX_RUNNING or (reason is Reason.QUOTA and any(map(_is_bounded, above)))
    for run in snapshot.running.values():
        if gang.flavors and run.allocation.flavor not in gang.flavors:
            continue
        path = {run.gang.queue, *(node.name for node in path_of(snapshot, run.gang.queue))}
        if not own or nodes & path:
            yield run.gang.job_id


def _is_bounded(queue: Queue) -> bool:
    return any(limit.borrow is not None for limits in queue.limits.values() for limit in limits.values())
