"""The options of the tracker."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from job_tracker.domain.job import Ending, JobState
from job_tracker.scheduling.options import HALF_LIFE


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """Options of the tracker."""

    capacity: int
    """The number of instances that may run at once."""
    stop_grace: timedelta = timedelta(seconds=10)
    """The time that a process may take to end after SIGTERM."""
    finish_grace: timedelta = timedelta(seconds=30)
    """The time that workers may run after their master has succeeded."""
    keep_finished: timedelta = timedelta(days=30)
    """The time for which ended jobs and their logs are kept."""
    keep_failed_group: timedelta = timedelta(0)
    """The time for which the group of a failed attempt is kept for inspection."""
    keep_succeeded_group: timedelta = timedelta(0)
    """The time for which the group of a succeeded attempt is kept for inspection."""
    keep_events: timedelta = timedelta(days=365)
    """The time for which audit events are kept."""
    usage_half_life: timedelta = HALF_LIFE
    """The time after which the past usage of a queue counts half as much."""
    restarts_ranks: bool = True
    """Whether a worker of an elastic group may be restarted alone."""
    repair_period: timedelta = timedelta(seconds=30)
    workers: int = 64
    """The number of jobs on which the tracker works at once."""

    def keep_until(self, ending: Ending) -> datetime | None:
        """Return the time until which a group with this ending is kept; None: it is not kept."""
        periods = {
            JobState.BACKOFF: self.keep_failed_group,
            JobState.FAILED: self.keep_failed_group,
            JobState.SUCCEEDED: self.keep_succeeded_group,
        }
        period = periods.get(ending.state)
        return ending.decided_at + period if period else None
