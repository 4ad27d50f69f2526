"""Why a job waits, as every replica answers it: from the notes of the leader, and from the store."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from job_tracker.domain.caller import Caller
from job_tracker.domain.job import Job, JobState
from job_tracker.scheduling.model import Promise, Reason
from job_tracker.scheduling.notes import reservation_of
from job_tracker.store.queue import QueueView
from job_tracker.store.scheduling import SchedulingStore

_MOST_HOLDERS = 100

SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.CAPACITY: "Other jobs use what it needs.",
    Reason.FRAGMENTED: "Enough is free in all, but not on single machines.",
    Reason.QUOTA: "Its queue, or a parent of it, is at its quota and cannot borrow more now.",
    Reason.LENT: "Other queues have borrowed its queue's quota.",
    Reason.MAX_RUNNING: "Its queue runs as many jobs as it may.",
    Reason.ORDER: "Jobs before it in its queue wait, too.",
    Reason.SHARE: "Queues that have used less for their weight go first.",
    Reason.RESERVED: "It would delay a job with an earlier reservation.",
    Reason.UNKNOWN_LENGTH: "Its duration is unknown, and enough such jobs have overtaken the first one.",
    Reason.UNKNOWN_CAPACITY: "The machines on which it may run have not been read yet.",
    Reason.LOST_CAPACITY: "The capacity is smaller than when it was accepted, and no longer enough for it.",
    Reason.ROOM: "The machine of the service has no room for the next launch.",
    Reason.PENDING: "The next pass decides about it; it was submitted a moment ago.",
}
"""Each reason in a sentence for people."""


class _Store(QueueView, SchedulingStore, Protocol):
    """The parts of a store that explanations are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job waits. A job that is not queued has no reasons."""

    job: Job
    position: int = 0
    reasons: tuple[Reason, ...] = ()
    """The binding one first."""
    promise: Promise | None = None
    moved_because: str = ""
    holders: Sequence[Job] = ()
    """Live jobs that the caller may see, the largest first."""
    others: Sequence[Job] = ()
    """The other live jobs."""


async def explain(store: _Store, caller: Caller, job: Job) -> Explanation:
    """Return why the job waits."""
    if job.state is not JobState.QUEUED:
        return Explanation(job=job)
    position = await store.queue_position(job)
    reserved = await reservation_of(store, job.id)
    live = sorted(await store.live_jobs(), key=lambda each: (-each.instances, each.id))
    seen = [each for each in live if caller.role_in(each.spec.project) is not None][:_MOST_HOLDERS]
    shown: Collection[int] = {each.id for each in seen}
    return Explanation(
        job=job,
        position=position,
        reasons=reserved.reasons if reserved else _without_note(position),
        promise=reserved.promise if reserved else None,
        moved_because=reserved.moved_because if reserved else "",
        holders=seen,
        others=[each for each in live if each.id not in shown],
    )


def _without_note(position: int) -> tuple[Reason, ...]:
    """Return the reasons of a job without a reservation: it is behind those that have one, or new."""
    return (Reason.ORDER,) if position else (Reason.PENDING,)
