"""Those who are told what happens and have no say in it: metrics, and events for people.

Each is called on the event loop in the middle of the work: it is quick, and raises nothing.
"""

from typing import Protocol

from job_tracker.domain.job import Job


class JobObserver(Protocol):
    """Is told of a job's versions as they are written, as far as this process writes them."""

    def __call__(self, before: Job, after: Job) -> None:
        """`after` is durable now. Often only what its ranks do has changed."""
        ...


class RequestObserver(Protocol):
    """Is told of every request to an engine."""

    def __call__(self, request: str, code: str, seconds: float) -> None:
        """`request` is its kind, as in "POST pods"; `code` what was answered, "none" for no answer."""
        ...


def ignore_job(before: Job, after: Job) -> None:
    """A JobObserver that does not care."""


def ignore_request(request: str, code: str, seconds: float) -> None:
    """A RequestObserver that does not care."""
