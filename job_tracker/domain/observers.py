"""Observers of jobs and requests, for metrics and events.

They do not influence the observed work. They are called on the event loop in the middle of the work, so they
must be quick and must not raise errors.
"""

from typing import Protocol

from job_tracker.domain.job import Job


class JobObserver(Protocol):
    """Receives each version of a job that this process has written."""

    def __call__(self, before: Job, after: Job) -> None:
        """Observe that the store has replaced `before` by `after`. Often only the state of ranks differs."""
        ...


class WaitingObserver(Protocol):
    """Receives a queued job that has a reservation, whenever the reason why it waits has changed."""

    def __call__(self, job: Job, code: str, sentence: str) -> None:
        """Observe why the queued job waits: a stable code, and a sentence for people."""
        ...


class RequestObserver(Protocol):
    """Receives every request to an engine."""

    def __call__(self, request: str, code: str, seconds: float) -> None:
        """Observe a request, such as "POST pods". `code` is "none" if there was no answer."""
        ...


def ignore_job(before: Job, after: Job) -> None:
    """Do nothing; a JobObserver."""


def ignore_request(request: str, code: str, seconds: float) -> None:
    """Do nothing; a RequestObserver."""
