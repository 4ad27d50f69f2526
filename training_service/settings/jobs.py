"""Settings of jobs: retries, deadlines, and the removal of ended jobs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from job_tracker.catalog.job_defaults import LONGEST_PATTERN, MOST_PATTERNS, categories, patterns
from job_tracker.common.config import DEFAULT_PATH, Config, Duration
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.policies import MAX_ATTEMPTS, MAX_DURATION, NumberPolicy, OnNonfinite, RetryPolicy


class JobSettings(Config):
    """Checks of jobs at submission, the end of jobs, and how long ended jobs and their groups are kept."""

    check_path: str = Field(
        default=DEFAULT_PATH,
        description="PATH of the `check` programs of algorithms, which the service runs at submission. "
        "Default: the folder of the service's Python, then the system's default PATH.",
    )
    stop_grace: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="Time from SIGTERM to SIGKILL when a job is stopped.",
    )
    finish_grace: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(0),
        le=timedelta(hours=24),
        description="Time that workers get to end by themselves after the master has succeeded.",
    )
    keep_finished: Duration = Field(
        default=timedelta(days=30),
        ge=timedelta(0),
        le=timedelta(days=36_500),
        description="Time for which ended jobs and their logs are kept.",
    )
    keep_failed_group: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="Time for which the ended pods or containers, or the working folders of the processes, "
        "of a failed attempt are kept for inspection. 0: not kept.",
    )
    keep_succeeded_group: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="Time for which the ended pods or containers, or the working folders of the processes, "
        "of a succeeded job are kept. 0: not kept. The group of a cancelled job is never kept.",
    )


LongDuration = Annotated[Duration, Field(ge=timedelta(0), le=MAX_DURATION)]
_RETRY = RetryPolicy()


def _known_categories(words: Sequence[str]) -> tuple[Category, ...]:
    try:
        return categories("retry_on", words)
    except InvalidField as error:
        raise ValueError(str(error)) from error


def _valid_patterns(words: Sequence[str]) -> tuple[str, ...]:
    try:
        return patterns("metrics", words)
    except InvalidField as error:
        raise ValueError(str(error)) from error


class NumberSettings(Config):
    """The default reaction to a reported metric that is NaN or infinite."""

    on_nonfinite: OnNonfinite = Field(
        default=OnNonfinite.FLAG,
        description="`flag`: the status shows the value. `fail`: the attempt also fails as `diverged`.",
    )
    metrics: Annotated[tuple[str, ...], AfterValidator(_valid_patterns)] = Field(
        default=NumberPolicy().metrics,
        description="Patterns for the names of the metrics to which `fail` applies. `*` stands for any text. "
        f"Upper and lower case do not matter. At most {MOST_PATTERNS}, each of at most {LONGEST_PATTERN} "
        "characters.",
    )


class RetrySettings(Config):
    """Default retry policy of jobs. A request can replace each value for its job."""

    max_attempts: int = Field(
        default=3,
        ge=1,
        le=MAX_ATTEMPTS,
        description="Largest number of attempts of a job, including the first. Preempted, evicted and "
        "resized attempts, and up to 20 attempts whose place on a node was taken (`place_taken`), do not "
        "count.",
    )
    backoff: LongDuration = Field(
        default=_RETRY.backoff,
        description="Pause before the second attempt. It doubles with each further attempt.",
    )
    max_backoff: LongDuration = Field(
        default=_RETRY.max_backoff, description="Longest pause between two attempts."
    )
    retry_on: Annotated[tuple[str, ...], AfterValidator(_known_categories)] = Field(
        default=(),
        description="Categories of diagnoses that lead to another attempt, besides those that are always "
        "retryable (such as a lost node). `any` stands for every failure.",
    )

    @model_validator(mode="after")
    def _backoffs_are_in_order(self) -> "RetrySettings":
        if self.backoff > self.max_backoff:
            raise ValueError(
                f"backoff is {self.backoff}; at most max_backoff, {self.max_backoff}, is allowed"
            )
        return self


class DeadlineSettings(Config):
    """Default deadlines of jobs. A request can replace them for its job. In requests, 0 means no deadline."""

    queue: LongDuration | None = Field(
        default=None,
        description="Time that the job may wait in the queue. It begins anew with each attempt. Unset "
        "or 0: no deadline.",
    )
    start: LongDuration | None = Field(
        default=timedelta(hours=1),
        description="Time from the launch of an attempt until its master is running. 0: no deadline.",
    )
    run: LongDuration | None = Field(
        default=None, description="Longest running time of an attempt. Unset or 0: no deadline."
    )
    progress: LongDuration | None = Field(
        default=None,
        description="Time in which a running attempt has to make progress. Unset or 0: the service learns it "
        "from the steps that processes report in calls of the service. Other attempts then have no such "
        "deadline.",
    )
