"""The job that the running task works on, and the call that it answers.

All log lines of the task name both (training_service/log_setup.py).

A task inherits this context from the task that starts it. Therefore, a task is started in an empty context if
it serves several jobs, or outlives the work on one job: see tasks.background.
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
    """Within the block, log lines name this job and attempt."""
    token = subject.set(Subject(job_id, attempt))
    try:
        yield
    finally:
        subject.reset(token)
