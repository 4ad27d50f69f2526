"""The states of a job, and the moves between them."""

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    """The states of a job.

    A submitted job is QUEUED until there is capacity for it. It is LAUNCHING while its group is being
    started; that state is written *before* the first call to the backend. It is RUNNING once its master runs.
    It ends as SUCCEEDED when the master exits with 0. It ends as FAILED, for example, when a rank fails, the
    group cannot be launched or a deadline passes. It ends as CANCELLED when a caller cancels it. A job that
    has ended stays in its state.

    If the retry policy allows another attempt, a failed attempt leads to BACKOFF instead, once its group is
    gone. After the backoff, the job is QUEUED again, at its old position. A preempted, resized or evicted job
    is also QUEUED again, once its group is gone.
    """

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    BACKOFF = "backoff"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Return whether the job has ended."""
        return not TRANSITIONS[self]

    @property
    def is_live(self) -> bool:
        """Return whether the job has a group at its backend, or is about to get one."""
        return self in LIVE_STATES


TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.LAUNCHING, JobState.FAILED, JobState.CANCELLED}),
    JobState.LAUNCHING: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.BACKOFF, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.SUCCEEDED, JobState.QUEUED, JobState.BACKOFF, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.BACKOFF: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

LIVE_STATES = frozenset({JobState.LAUNCHING, JobState.RUNNING})
