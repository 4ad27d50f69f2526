"""Policies of a job: retries, elasticity and deadlines; and limits of a project."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from job_tracker.domain.diagnosis import Category, Diagnosis

MAX_ATTEMPTS = 100
MAX_DURATION = timedelta(days=3650)
"""The longest backoff or deadline. Today's date plus this duration is still a valid date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Decides whether a failed attempt is followed by another one, which starts the whole group again.

    Another attempt follows only if there were fewer than `max_attempts` attempts. In addition, the diagnosis
    must be `retryable` (for example, the node was lost), or its category must be in `retry_on`.
    """

    max_attempts: int = 1
    """The largest number of attempts, including the first."""
    backoff: timedelta = timedelta(seconds=10)
    """The wait before the second attempt. The wait doubles with each further attempt, up to `max_backoff`."""
    max_backoff: timedelta = timedelta(minutes=10)
    retry_on: tuple[Category, ...] = ()

    def allows(self, attempt: int, diagnosis: Diagnosis) -> bool:
        """Return whether another attempt follows after a failure of attempt number `attempt` (from 1)."""
        return attempt < self.max_attempts and (diagnosis.retryable or diagnosis.category in self.retry_on)

    def delay_after(self, attempt: int) -> timedelta:
        """Return how long to wait after attempt number `attempt` (from 1)."""
        # The delay is computed as a float: a timedelta would overflow at the largest number of attempts.
        seconds = self.backoff.total_seconds() * 2.0 ** (attempt - 1)
        return timedelta(seconds=min(seconds, self.max_backoff.total_seconds()))


class OnNonfinite(StrEnum):
    """The reaction to a reported metric that is NaN or infinite. The job's status shows the metric anyway."""

    FLAG = "flag"
    FAIL = "fail"


LOSSES = ("*loss*",)
"""The default of NumberPolicy.metrics.

Other metrics may be NaN or infinite in a healthy training, for example a score without positive samples, or
the norm of the gradients in steps that a gradient scaler skips.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberPolicy:
    """Decides whether an attempt fails as `diverged` when it reports NaN or infinity."""

    on_nonfinite: OnNonfinite = OnNonfinite.FLAG
    metrics: tuple[str, ...] = LOSSES
    """Patterns of the names of metrics to which the policy applies: `*` is any text, `?` one character."""

    def forbids(self, metric: str) -> bool:
        """Return whether an attempt fails if this metric is not finite."""
        name = metric.casefold()
        # "[" has no special meaning, since names such as loss[0] contain it.
        counts = any(fnmatchcase(name, pattern.casefold().replace("[", "[[]")) for pattern in self.metrics)
        return self.on_nonfinite is OnNonfinite.FAIL and counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The rules for a group that loses workers: it continues while the lost workers are restarted."""

    min_instances: int
    """The smallest number of instances that train. With fewer, training waits for the restarted instances."""
    max_restarts: int = 10
    """The largest number of restarts of workers in each attempt.

    The loss of one more worker ends the attempt.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectLimits:
    """Limits of a project. None: no limit besides the limits of the service."""

    max_queued: int | None = None
    """The largest number of the project's jobs that may be queued at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The longest times in a state, or without progress, before the job or its attempt fails.

    None: no limit, except for `progress`.
    """

    queue: timedelta | None = None
    """The time in the queue, each time the job is queued. A wait in the cluster's own queue counts, too."""
    start: timedelta | None = None
    """The time from the launch of an attempt until its master runs.

    If the attempt waits in the cluster's own queue, the time counts from the end of this wait.
    """
    run: timedelta | None = None
    """The time from the start of an attempt's master until the end of the attempt."""
    progress: timedelta | None = None
    """The time without progress. The limit is higher if the attempt's usual steps take long.

    None: the limit is learned, and applies only to attempts whose processes report their steps by calls.
    """
