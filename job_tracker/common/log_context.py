"""Which job the running task is at work on: every line that it logs says so (training_service/log_setup.py).

Tasks inherit it from the one that starts them. One that outlives the work on a job, or serves several,
is therefore started in a context of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """A job, and one of its attempts; 0: none in particular."""

    job_id: int
    attempt: int = 0


subject: ContextVar[Subject | None] = ContextVar("subject", default=None)


@contextmanager
def about(job_id: int, attempt: int = 0) -> Iterator[None]:
    """What is logged meanwhile is about this job."""
    token = subject.set(Subject(job_id, attempt))
    try:
        yield
    finally:
        subject.reset(token)
