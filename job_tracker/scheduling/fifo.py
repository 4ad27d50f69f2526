"""First in, first out, under a capacity in instances.

The job at the head is never overtaken: a large job that does not fit yet holds back the smaller ones behind
it, and starts as soon as enough jobs have ended. Jobs that fit together are admitted at once and start in any
order: each is a separate write, and a failed write is repeated after the others.
"""

from collections.abc import Sequence
from datetime import datetime

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.job import Job
from job_tracker.scheduling.policy import Admit, Decision, Reason, Refuse, Snapshot, Wait


class Fifo:
    """The policy for one queue without priorities."""

    def plan(self, snapshot: Snapshot, _now: datetime, /) -> Sequence[Decision]:
        decisions: list[Decision] = []
        free = snapshot.capacity - snapshot.in_use
        closed: Reason | None = None
        for job in snapshot.queued:
            if closed is not None:
                decisions.append(Wait(job, closed))
            elif job.spec.instances > snapshot.capacity:
                decisions.append(Refuse(job, _too_large(job, snapshot.capacity)))
            elif job.spec.instances > free:
                decisions.append(Wait(job, Reason.CAPACITY))
                closed = Reason.ORDER
            else:
                decisions.append(Admit(job))
                free -= job.spec.instances
                closed = None if snapshot.has_room else Reason.ROOM
        return decisions


def _too_large(job: Job, capacity: int) -> Diagnosis:
    return Diagnosis(
        category=Category.EXCEEDS_CAPACITY,
        summary=f"The job needs {job.spec.instances} instances, but the service's capacity is {capacity}.",
        resolution="Submit it with fewer instances, or raise scheduling.capacity.",
    )
