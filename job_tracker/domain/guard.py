"""Checks rights, and reports each denial."""

from collections.abc import Callable
from datetime import datetime

from job_tracker.domain import naming, rights
from job_tracker.domain.audit import EventObserver, Outcome, event_of, target_of_job
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, JobNotFound
from job_tracker.domain.job import Job


class Guard:
    """The checks of rights.py. `note` gets an event for each denial."""

    def __init__(self, note: EventObserver, clock: Callable[[], datetime]) -> None:
        self._note = note
        self._clock = clock

    def check(self, caller: Caller, operation: str, project: str, target: str = "") -> None:
        """See rights.check. `target` is the target of the event about a denial."""
        try:
            rights.check(caller, operation, project)
        except Forbidden:
            self._denied(caller, operation, project, target)
            raise

    def check_everywhere(self, caller: Caller, operation: str, target: str = "") -> None:
        """See rights.check_everywhere."""
        try:
            rights.check_everywhere(caller, operation)
        except Forbidden:
            self._denied(caller, operation, "", target)
            raise

    def check_job(self, caller: Caller, operation: str, job: Job) -> None:
        """See rights.check_job."""
        try:
            rights.check_job(caller, operation, job)
        except (Forbidden, JobNotFound):
            self._denied(caller, operation, job.spec.project, target_of_job(job.id))
            raise

    def _denied(self, caller: Caller, operation: str, project: str, target: str) -> None:
        # The project may be any text that the caller sent, such as a token by mistake.
        known = project if naming.is_project(project) else ""
        now = self._clock()
        self._note(event_of(caller, operation, Outcome.DENIED, now, project=known, target=target))
