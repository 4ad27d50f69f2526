"""The job that the running task works on, and the call that it answers. All its log lines name them
(training_service/log_setup.py).

Tasks inherit it from the task that starts them. A task that serves several jobs, or outlives the work on one,
is therefore started in an empty context: see tasks.background.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """A job and one of its attempts; 0: no particular attempt."""

    job_id: int
    attempt: int = 0


subject: ContextVar[Subject | None] = ContextVar("subject", default=None)
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The request id of the call; empty outside of calls."""


@contextmanager
def about(job_id: int, attempt: int = 0) -> Iterator[None]:
    """Make the log lines within the block name this job."""
    token = subject.set(Subject(job_id, attempt))
    try:
        yield
    finally:
        subject.reset(token)
