"""First in, first out, under a capacity in instances.

The job at the head is never overtaken: a large one that does not fit yet holds the smaller ones behind
it back, and so gets its turn as soon as enough has ended.
"""

from enum import Enum, auto

from job_tracker.domain.job import Job


class Verdict(Enum):
    """What becomes of the job at the head of the queue."""

    ADMIT = auto()
    WAIT = auto()
    NEVER_FITS = auto()


def judge(head: Job, *, in_use: int, capacity: int) -> Verdict:
    """Whether `head` may start while `in_use` of `capacity` instances are taken."""
    if head.spec.instances > capacity:
        return Verdict.NEVER_FITS
    return Verdict.ADMIT if in_use + head.spec.instances <= capacity else Verdict.WAIT
