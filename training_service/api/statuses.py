"""Keeps the serialized status message of a job until its status changes, for clients that poll."""

from job_tracker.domain.job import Job
from job_tracker.jobs import JobView
from job_tracker.scheduling.mirror import Outlook
from training_service.api.convert.jobs import status_of

_MOST_KEPT, _LARGEST_KEPT = 4096, 2048  # messages, and bytes of one message


class Statuses:
    """Makes status messages of jobs, and remembers the small ones."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Job, int, Outlook | None, bytes]] = {}

    def of(self, view: JobView) -> bytes:
        """Return the serialized GetTrainingStatusResponse of a job."""
        job, position = view.job, view.position
        kept = self._kept.get(job.id)
        # Jobs are immutable. The SQLite store usually returns the same object until the job changes.
        if kept is not None and kept[0] is job and kept[1] == position and kept[2] == view.outlook:
            return kept[3]
        message = status_of(view).SerializeToString()
        if len(message) <= _LARGEST_KEPT:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[job.id] = job, position, view.outlook, message
        return message
