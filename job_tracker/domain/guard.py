"""Checks rights, and passes on what is denied."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from job_tracker.domain import naming, rights
from job_tracker.domain.audit import EventObserver, Outcome, event_of, target_of_job
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, JobNotFound
from job_tracker.domain.job import Job


class Guard:
    """The checks of rights.py. `note` gets an event of each denial."""

    def __init__(self, note: EventObserver, clock: Callable[[], datetime]) -> None:
        self._note = note
        self._clock = clock

    def check(self, caller: Caller, operation: str, project: str, target: str = "") -> None:
        """See rights.check. `target` is what the operation is about, if that exists."""
        with self._noting(caller, operation, project, target):
            rights.check(caller, operation, project)

    def check_everywhere(self, caller: Caller, operation: str, target: str = "") -> None:
        """See rights.check_everywhere."""
        with self._noting(caller, operation, "", target):
            rights.check_everywhere(caller, operation)

    def check_job(self, caller: Caller, operation: str, job: Job) -> None:
        """See rights.check_job."""
        with self._noting(caller, operation, job.spec.project, target_of_job(job.id)):
            rights.check_job(caller, operation, job)

    @contextmanager
    def _noting(self, caller: Caller, operation: str, project: str, target: str) -> Iterator[None]:
        try:
            yield
        except (Forbidden, JobNotFound):
            # The project may be any text that the caller sent, such as a token by mistake.
            known = project if naming.is_project(project) else ""
            now = self._clock()
            self._note(event_of(caller, operation, Outcome.DENIED, now, project=known, target=target))
            raise
