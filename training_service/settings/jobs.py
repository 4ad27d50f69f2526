"""Jobs: which run, how often they are tried, how long they may take, how they end."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from job_tracker.catalog.job_defaults import categories
from job_tracker.common.config import DEFAULT_PATH, Config, Duration
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.policies import LONGEST, MOST_ATTEMPTS, RetryPolicy

PROCESSES_PER_INSTANCE = 8
"""As many as most machines have GPUs, at most."""


class SchedulingSettings(Config):
    """Which jobs run, and how many."""

    capacity: int = Field(default=8, ge=1, le=1_000_000, description="instances that may run at once")
    max_queued: int = Field(default=1_000_000, ge=1, description="jobs that may wait; more are refused")
    max_processes: int | None = Field(
        default=None,
        ge=1,
        le=256_000_000,
        description="training processes that one job may have in all its instances (PARALLEL_INSTANCES times "
        f"nproc_per_node); none: {PROCESSES_PER_INSTANCE} for each instance of the capacity",
    )

    @property
    def most_processes(self) -> int:
        """How many training processes one job may have."""
        return self.max_processes or PROCESSES_PER_INSTANCE * self.capacity


class JobSettings(Config):
    """How jobs are checked, how they end, and what becomes of them then."""

    check_path: str = Field(
        default=DEFAULT_PATH,
        description="PATH of the check programs of algorithms, which the service runs itself",
    )

    stop_grace: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="how long a process may take to end after SIGTERM, before SIGKILL",
    )
    finish_grace: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(0),
        le=timedelta(hours=24),
        description="how long workers may take to end by themselves once the master has succeeded",
    )
    keep_finished: Duration = Field(
        default=timedelta(days=30),
        ge=timedelta(0),
        le=timedelta(days=36_500),
        description="how long ended jobs and their logs are kept (ISO 8601, such as P30D, or seconds)",
    )
    keep_failed_group: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="how long what is left of a failed job stays to be looked at: its pods that have ended, "
        "or the working folders of its processes; 0: not at all",
    )
    keep_succeeded_group: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="the same, of a job that succeeded; nothing is kept of one that was cancelled",
    )


LongDuration = Annotated[Duration, Field(ge=timedelta(0), le=LONGEST)]


_RETRY = RetryPolicy()


def _known_categories(words: Sequence[str]) -> tuple[Category, ...]:
    try:
        return categories("retry_on", words)
    except InvalidField as error:
        raise ValueError(str(error)) from error


class RetrySettings(Config):
    """When a failed attempt is followed by another; a request may say otherwise for its job."""

    max_attempts: int = Field(
        default=3, ge=1, le=MOST_ATTEMPTS, description="how often a job's group may be started in all"
    )
    backoff: LongDuration = Field(
        default=_RETRY.backoff,
        description="the wait before the second attempt; it doubles with each further one",
    )
    max_backoff: LongDuration = Field(default=_RETRY.max_backoff, description="the longest such wait")
    retry_on: Annotated[tuple[str, ...], AfterValidator(_known_categories)] = Field(
        default=(),
        description="categories of diagnoses that are worth another attempt, besides those that are so by "
        'nature (lost nodes and the like); "any" is every failure',
    )

    @model_validator(mode="after")
    def _backoffs_are_in_order(self) -> "RetrySettings":
        if self.backoff > self.max_backoff:
            raise ValueError(f"backoff {self.backoff} is more than max_backoff {self.max_backoff}")
        return self


class DeadlineSettings(Config):
    """How long a job may be in a state before it fails; none: for ever. A request may say otherwise."""

    queue: LongDuration | None = Field(default=None, description="to wait in the queue, each time")
    start: LongDuration | None = Field(
        default=timedelta(hours=1), description="to be launched until its master runs, for each attempt"
    )
    run: LongDuration | None = Field(default=None, description="to run, for each attempt")
