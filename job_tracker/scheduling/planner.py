"""The planner: decides which waiting jobs start now, and when the next ones are to start."""

import math
from dataclasses import replace

from job_tracker.scheduling.delegated import launches
from job_tracker.scheduling.leaving import stakes_of, without_hung
from job_tracker.scheduling.model import Plan, Snapshot
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.passes import Pass
from job_tracker.scheduling.preemption import preemptions
from job_tracker.scheduling.resizing import resizes
from job_tracker.scheduling.running import running_gangs

__all__ = ["PlannerOptions", "plan"]


def plan(snapshot: Snapshot, now: float, options: PlannerOptions | None = None) -> Plan:
    """Return the decisions for a snapshot. The function is pure: the same input gives the same plan.

    The first `options.reservations` waiting jobs hold a reservation. A job starts before the jobs ahead of it
    only if it delays none of their reservations. No start can be promised to a job that has to wait for a job
    of unknown length. At most `options.overtake_limit` jobs start before such a waiting job.

    The preemption rules of the queues say which running jobs are stopped for waiting jobs. Elastic jobs are
    also stopped to continue in another size. If the cluster's own queue decides when jobs start, the planner
    only chooses the jobs to launch.
    """
    if options is not None and options.delegated is not None:
        return launches(snapshot, options.delegated)
    running, stakes = running_gangs(snapshot.running), stakes_of(snapshot)
    snapshot = without_hung(replace(snapshot, running=running, stakes=stakes), now)
    decided = Pass(snapshot, now, options or PlannerOptions()).run()
    decided = replace(decided, preempted=preemptions(snapshot, decided, now))
    resized, later = resizes(snapshot, decided, now)
    next_at = min(later, math.inf if decided.next_at is None else decided.next_at)
    return replace(
        decided,
        preempted=(*decided.preempted, *resized),
        next_at=next_at if next_at < math.inf else None,
    )
