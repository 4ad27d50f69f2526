"""Policies of a job: the request's values override the configured defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from job_tracker.common.printable import quoted
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.policies import (
    MAX_ATTEMPTS,
    MAX_DURATION,
    Deadlines,
    NumberPolicy,
    OnNonfinite,
    RetryPolicy,
)

ANY_FAILURE = "any"
"""The word in `retry_on` that stands for all categories of failures."""
MOST_PATTERNS, LONGEST_PATTERN = 16, 128
"""The largest number of patterns of metric names, and the largest length of each, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """The configured policies, which requests may override.

    A request sends its values under the names of the policies' fields; times are in seconds.
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    deadlines: Deadlines = field(default_factory=Deadlines)
    numbers: NumberPolicy = field(default_factory=NumberPolicy)

    def retry_of(self, sent: Mapping[str, Any]) -> RetryPolicy:
        """Return the configured retry policy, overridden by the values of a request.

        Raises InvalidField if a value is not allowed.
        """
        policy = self.retry
        if "max_attempts" in sent:
            if not 1 <= sent["max_attempts"] <= MAX_ATTEMPTS:
                raise InvalidField(
                    "retry_policy.max_attempts",
                    f"{sent['max_attempts']} is not allowed; allowed: 1 to {MAX_ATTEMPTS}",
                )
            policy = replace(policy, max_attempts=sent["max_attempts"])
        if "backoff" in sent:
            policy = replace(policy, backoff=duration("retry_policy.backoff", sent["backoff"]))
        if "max_backoff" in sent:
            policy = replace(policy, max_backoff=duration("retry_policy.max_backoff", sent["max_backoff"]))
        if policy.backoff > policy.max_backoff:
            raise InvalidField(
                "retry_policy.backoff",
                f"{policy.backoff} is not allowed: max_backoff is {policy.max_backoff}",
            )
        if sent.get("retry_on"):
            policy = replace(policy, retry_on=categories("retry_policy.retry_on", sent["retry_on"]))
        return policy

    def deadlines_of(
        self, sent: Mapping[str, float], progress_of_algorithm: timedelta | None = None
    ) -> Deadlines:
        """Return the configured deadlines, overridden by the values of a request.

        A value of 0 becomes None: see Deadlines. `progress_of_algorithm` is the algorithm's own progress
        deadline; None: the algorithm has none. Raises InvalidField if a value is not allowed.
        """
        durations = {name: duration(f"deadlines.{name}", seconds) for name, seconds in sent.items()}
        if progress_of_algorithm is not None:
            durations = {"progress": progress_of_algorithm, **durations}
        return replace(self.deadlines, **{name: duration or None for name, duration in durations.items()})

    def numbers_of(self, sent: Mapping[str, Any], of_algorithm: OnNonfinite | None) -> NumberPolicy:
        """Return the configured number policy, overridden by the algorithm's value and then by the request's.

        Raises InvalidField if a value of the request is not allowed.
        """
        policy = replace(self.numbers, on_nonfinite=of_algorithm) if of_algorithm else self.numbers
        if "on_nonfinite" in sent:
            word = sent["on_nonfinite"]
            if word not in set(OnNonfinite):
                raise InvalidField(
                    "number_policy.on_nonfinite",
                    f"{quoted(word)} is not allowed; allowed: {', '.join(OnNonfinite)}",
                )
            policy = replace(policy, on_nonfinite=OnNonfinite(word))
        if sent.get("metrics"):
            policy = replace(policy, metrics=patterns("number_policy.metrics", sent["metrics"]))
        return policy


def patterns(field: str, words: Sequence[str]) -> tuple[str, ...]:
    """Check and return patterns of metric names. Raises InvalidField if they are not allowed."""
    if len(words) > MOST_PATTERNS:
        raise InvalidField(field, f"has {len(words)} patterns; at most {MOST_PATTERNS} are allowed")
    for word in words:
        if not (0 < len(word) <= LONGEST_PATTERN and word.isprintable()):
            raise InvalidField(
                field,
                f"{quoted(word)} is not allowed: use 1 to {LONGEST_PATTERN} printable characters",
            )
    return tuple(words)


def categories(field: str, words: Sequence[str]) -> tuple[Category, ...]:
    """Return the categories with these names; `any` stands for all. Raises InvalidField for other names."""
    known = set(Category)
    for word in words:
        if word != ANY_FAILURE and word not in known:
            raise InvalidField(
                field,
                f"unknown category {quoted(word)}; allowed: {ANY_FAILURE}, {', '.join(Category)}",
            )
    return tuple(Category) if ANY_FAILURE in words else tuple(sorted(Category(word) for word in set(words)))


def duration(field: str, seconds: float) -> timedelta:
    """Return the duration that a request's field gives in seconds.

    Raises InvalidField if the duration is not allowed.
    """
    if not 0 <= seconds <= MAX_DURATION.total_seconds():
        raise InvalidField(field, f"{seconds:g} s is not allowed; allowed: 0 to {MAX_DURATION.days} days")
    return timedelta(seconds=seconds)
