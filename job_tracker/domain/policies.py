"""What is asked for of a job's life: when it is tried again, and how long it may take."""

from dataclasses import dataclass
from datetime import timedelta

from job_tracker.domain.diagnosis import Category, Diagnosis

MOST_ATTEMPTS = 100
LONGEST = timedelta(days=3650)
"""The longest back-off or deadline: far from the end of what a calendar can add to a date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt is followed by another, in which the whole group starts anew.

    It is if the diagnosis says that the same may succeed when it is simply tried again (`retryable`:
    the node was lost, the pod evicted, …), or if its category is among `retry_on`.
    """

    max_attempts: int = 1
    """How often the group may be started in all."""
    backoff: timedelta = timedelta(seconds=10)
    """The wait before the second attempt. It doubles with each further one, up to `max_backoff`."""
    max_backoff: timedelta = timedelta(minutes=10)
    retry_on: tuple[Category, ...] = ()

    def allows(self, attempt: int, diagnosis: Diagnosis) -> bool:
        """Whether this failure of that attempt, counted from 1, is followed by another."""
        return attempt < self.max_attempts and (diagnosis.retryable or diagnosis.category in self.retry_on)

    def delay_after(self, attempt: int) -> timedelta:
        """How long to wait after that attempt, counted from 1."""
        # As floats, which are not exceeded by doubling as often as there may be attempts.
        seconds = self.backoff.total_seconds() * 2.0 ** (attempt - 1)
        return timedelta(seconds=min(seconds, self.max_backoff.total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """How a group goes on that has lost workers: each is started anew, while the others train on."""

    min_instances: int
    """With fewer, training waits for those that are started anew."""
    max_restarts: int = 10
    """How often workers may be started anew, in each attempt, until the loss of one ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a job may be in a state before it fails. None: for ever."""

    queue: timedelta | None = None
    """To wait in the queue, each time."""
    start: timedelta | None = None
    """To be launched, for each attempt: until its master runs."""
    run: timedelta | None = None
    """To run, for each attempt."""
