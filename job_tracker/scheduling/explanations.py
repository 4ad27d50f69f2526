"""Why a job waits, who holds what it needs, when it may start, and what would help."""

from collections.abc import Mapping
from dataclasses import dataclass

from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.estimates import Estimate, estimates
from job_tracker.scheduling.model import Gang, Plan, Reason, Snapshot
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.remedies import Remedy, remedy


@dataclass(frozen=True, slots=True)
class Holder:
    """A running job that holds what a waiting one needs."""

    job_id: int
    queue: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a waiting job."""

    reasons: tuple[Reason, ...]
    """The binding one first."""
    holders: tuple[Holder, ...]
    estimate: Estimate | None
    """None: it cannot start with the capacity as it is."""
    remedy: Remedy


def explain(
    snapshot: Snapshot,
    plan: Plan,
    job_id: int,
    now: float,
    options: PlannerOptions | None = None,
    priorities: Mapping[str, int] | None = None,
) -> Explanation:
    """Explain why a waiting job waits. The plan is that of the same snapshot.

    `priorities` are the classes that jobs may ask for; None: any number. Raises KeyError.
    """
    options = options or PlannerOptions()
    gang = snapshot.waiting.get(job_id)
    if gang is None:
        raise KeyError(f"job {job_id} does not wait")
    reasons = _reasons(snapshot, plan, gang)
    estimate = None
    if fits_ever(snapshot.queues, snapshot.flavors, gang) is None:
        estimate = estimates(snapshot, plan, now, options, until=job_id).get(job_id)
    return Explanation(
        reasons,
        _holders(snapshot, gang, reasons[0]),
        estimate,
        remedy(snapshot, plan, gang, reasons[0], now, options, priorities),
    )


def _reasons(snapshot: Snapshot, plan: Plan, gang: Gang) -> tuple[Reason, ...]:
    if any(admit.job_id == gang.job_id for admit in plan.admitted):
        return (Reason.PENDING,)
    for reserve in plan.reserved:
        if reserve.job_id == gang.job_id:
            return reserve.reasons
    if fits_ever(snapshot.queues, snapshot.flavors, gang) is not None:
        return (Reason.LOST_CAPACITY,)
    for reserve in plan.reserved:
        ahead = snapshot.waiting.get(reserve.job_id)
        if ahead is not None and ahead.queue == gang.queue:
            return (Reason.ORDER, reserve.reasons[0])
    return (Reason.SHARE, plan.reserved[0].reasons[0]) if plan.reserved else (Reason.PENDING,)


def _holders(snapshot: Snapshot, gang: Gang, reason: Reason) -> tuple[Holder, ...]:
    own = reason in (Reason.MAX_RUNNING, Reason.QUOTA)
    runs = snapshot.running.values()
    alike = (run for run in runs if not gang.flavors or run.allocation.flavor in gang.flavors)
    found = [run for run in alike if not own or run.gang.queue == gang.queue]
    return tuple(Holder(run.gang.job_id, run.gang.queue) for run in found or runs)
