"""The reasons why jobs wait, as sentences, and the number of jobs that wait for each reason."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from job_tracker.scheduling.model import Gang, Plan, Reason

SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.CAPACITY: "Other jobs use what it needs.",
    Reason.FRAGMENTED: "Enough is free in total, but not on single machines.",
    Reason.QUOTA: "Its queue, or a parent of it, is at its quota and cannot borrow more now.",
    Reason.LENT: "Other queues have borrowed its queue's quota.",
    Reason.KEPT: "The free capacity is guaranteed to other queues, which do not lend it.",
    Reason.MAX_RUNNING: "Its queue, or a parent of it, runs as many jobs as it may.",
    Reason.ORDER: "Jobs ahead of it in its queue wait, too.",
    Reason.SHARE: "Queues that have used less for their weight go first.",
    Reason.RESERVED: "It would delay a reservation, or a job ahead of it was overtaken as often as allowed.",
    Reason.UNKNOWN_LENGTH: "Its duration is unknown, and a job ahead was overtaken as often as allowed.",
    Reason.UNKNOWN_CAPACITY: "The machines on which it may run have not been read yet.",
    Reason.LOST_CAPACITY: "The capacity is smaller than when it was accepted, and no longer enough for it.",
    Reason.ROOM: "The machine of the service has no room for the next launch.",
    Reason.PREEMPTING: "Other jobs are being stopped for it.",
    Reason.DELEGATED: "The cluster's own queue decides when it starts.",
    Reason.PENDING: "The next pass of the scheduler decides about it.",
}
"""Each reason in a sentence."""


class _Waiting(Protocol):
    def queues(self) -> Iterable[str]: ...

    def count(self, queue: str) -> int: ...

    def get(self, job_id: int) -> Gang | None: ...


def binding_reasons(plan: Plan, waiting: _Waiting) -> dict[int, Reason]:
    """Return the decisive reason, the first one, of each job that has a reservation and still waits."""
    return {each.job_id: each.reasons[0] for each in plan.reserved if waiting.get(each.job_id) is not None}


def counts_by_reason(plan: Plan, waiting: _Waiting) -> Mapping[Reason, int]:
    """Return the number of jobs that wait for each reason after the plan.

    The cost does not grow with the number of waiting jobs.
    """
    binding = binding_reasons(plan, waiting)
    counts = Counter(binding.values())
    named = Counter(gang.queue for job_id in binding if (gang := waiting.get(job_id)) is not None)
    for queue in waiting.queues():
        others = waiting.count(queue) - named[queue]
        if others:
            counts[_of_others(has_first=bool(named[queue]), has_any=bool(binding))] += others
    return counts


def _of_others(*, has_first: bool, has_any: bool) -> Reason:
    """Return why those jobs of a queue wait that have no reservation in the plan.

    `has_first` says whether a job of the queue has a reservation, `has_any` whether any waiting job has one.
    """
    if has_first:
        return Reason.ORDER
    return Reason.SHARE if has_any else Reason.PENDING
