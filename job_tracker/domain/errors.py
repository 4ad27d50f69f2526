"""Everything that the domain raises on purpose.

TrackerError
├── InvalidField             a value in a request is not allowed
│   └── UnknownReference     ... it names something that does not exist
├── JobNotFound
├── RequestKeyConflict       the request key was used for another request
├── LimitExceeded            the queue is full
├── NotAllowed               the caller did not prove that it may do this
├── AttemptOver              a report of an attempt that does not run (any more)
├── IllegalMove              a transition that TRANSITIONS does not have
├── StaleJob                 somebody else changed the job first: read again
├── LeadershipLost                  the term is over: another may lead by now
├── StoreUnavailable         the store cannot answer now: try again later
│   └── StoreLost            ... it never will again: its files are gone
├── StoreRefused             the store cannot be opened, and why
├── StorageUnavailable       datasets or logs cannot be reached now: try again later
├── LaunchFailed             final: the attempt ends with this diagnosis
├── BackendUnavailable       the outside cannot answer now: try again later
│   └── NoRoom               ... this machine has no room for a launch now
├── BackendRefused           the backend cannot be used as it is configured, and why
└── LogsNotFound             there is nothing to read (yet, or any more)
"""

from job_tracker.domain.diagnosis import Diagnosis


class TrackerError(Exception):
    """The root: everything below is raised on purpose."""


class InvalidField(TrackerError):
    """A value in a request is not allowed. Says which field, which value, and what is allowed."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class UnknownReference(InvalidField):
    """A value in a request names something that does not exist."""


class JobNotFound(TrackerError):
    """No job has this id: it never existed, or it was pruned."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"Job {job_id} doesn't exist")
        self.job_id = job_id


class RequestKeyConflict(TrackerError):
    """The request key belongs to a job that was submitted with another request."""

    def __init__(self, request_key: str, job_id: int) -> None:
        super().__init__(
            f"request_key: {request_key!r} was used for job {job_id}, which was submitted with other "
            "metadata; choose a new key for a new request"
        )
        self.job_id = job_id


class LimitExceeded(TrackerError):
    """The service is full. Says which limit and how to go on."""


class NotAllowed(TrackerError):
    """The caller did not prove that it may do this. Says what is missing."""


class AttemptOver(TrackerError):
    """A report of an attempt that does not run: it has ended, or another has taken its place."""

    def __init__(self, job_id: int, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of job {job_id} does not run any more; its reports are not kept")


class IllegalMove(TrackerError):
    """A move between states that TRANSITIONS does not have."""

    def __init__(self, job_id: int, source: str, target: str) -> None:
        super().__init__(f"job {job_id} cannot move from {source} to {target}")


class StaleJob(TrackerError):
    """The job changed since it was read. Read it again and decide again."""

    def __init__(self, job_id: int, version: int) -> None:
        super().__init__(f"job {job_id} is no longer at version {version}")


class LeadershipLost(TrackerError):
    """What only the leader may do was refused: its term is over, and another may lead by now."""


class StoreUnavailable(TrackerError):
    """The store cannot answer now. Nothing was changed, or it is not known: calls may be repeated."""


class StoreLost(StoreUnavailable):
    """The store cannot keep anything any more: the service has to end. Says what is safe and what to do."""


class StoreRefused(TrackerError):
    """The store cannot be opened as it is, and nothing in it was touched."""


class StorageUnavailable(TrackerError):
    """The storage of datasets or of logs cannot answer now, or does not let us in."""


class LaunchFailed(TrackerError):
    """A group that cannot be launched; nothing of it is left. The attempt ends with this diagnosis."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(f"{diagnosis.summary} {diagnosis.resolution}")
        self.diagnosis = diagnosis


class BackendUnavailable(TrackerError):
    """The engine cannot answer now. The call may be repeated."""


class NoRoom(BackendUnavailable):
    """This machine lacks what a launch takes (descriptors, processes, memory, disk). Says what to do."""


class BackendRefused(TrackerError):
    """The engine cannot be used as it is configured: there is none, or it does not let us in."""


class LogsNotFound(TrackerError):
    """There is no log for this group and rank, yet or any more."""
