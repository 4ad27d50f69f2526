"""All errors that the domain raises on purpose.

TrackerError
├── InvalidField             a value in a request is not allowed
│   └── UnknownReference     ... it names something that does not exist
│       └── UnknownProject   ... such as a project
├── JobNotFound
├── RequestKeyConflict       the request key was used for another request
├── LimitExceeded            a limit of the service is reached
│   ├── QueueFull            ... of queued jobs, in all or of a project, caller or queue
│   ├── RateExceeded         ... of the rate at which a caller may make calls
│   ├── TooManyTokens        ... of tokens, in all or of a project
│   └── TooManyDeclarations  ... of declarations, in all or of a project
├── NotAllowed               the caller did not prove that it may do this
├── Forbidden                the caller is known, but its role does not allow this
├── NotPossible              the present state of the object does not allow this
├── AttemptOver              a report for an attempt that is no longer running
├── IllegalMove              a move that is not in TRANSITIONS, or that a decided ending rules out
├── StaleJob                 another writer changed the job first: read it again
├── LeadershipLost           the term is over: another replica may lead
├── StoreUnavailable         the store does not answer: retry later
│   └── StoreLost            ... permanently: its files are gone
├── StoreRefused             the store cannot be opened
├── StorageUnavailable       the storage of datasets or logs does not answer: retry later
├── TreeDamaged              files of an uploaded tree are gone or changed: upload them again
├── LaunchFailed             permanent: the attempt ends with this diagnosis
├── BackendUnavailable       the engine does not answer: retry later
│   └── NoRoom               ... this machine has no room for a launch
├── BackendRefused           the engine cannot be used as configured
└── LogsNotFound             the log does not exist yet, or was deleted
"""

from typing import Final

from job_tracker.common.printable import quoted
from job_tracker.domain.diagnosis import Diagnosis

_QUEUE_SECONDS: Final = 60.0
_SHORTEST_WAIT: Final = 0.1


class TrackerError(Exception):
    """The base of all errors that are raised on purpose."""


class InvalidField(TrackerError):
    """A value in a request is not allowed.

    The message names the field, usually the value, and what is allowed.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class UnknownReference(InvalidField):
    """A value in a request names something that does not exist."""


class UnknownProject(UnknownReference):
    """The project does not exist, or was deleted."""

    def __init__(self, project: str) -> None:
        super().__init__("project", f"{project} doesn't exist; the operator configures projects")


class JobNotFound(TrackerError):
    """The job never existed, was deleted, or belongs to a project in which the caller has no role."""

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
    """A limit of the service is reached. The message names the limit and says what to do."""

    def __init__(self, message: str, *, limit: str, retry_after: float | None = None) -> None:
        """`limit` is usually the name of a setting, without the name of a project: `projects.max_queued`.

        `retry_after` is in seconds; None: unknown.
        """
        super().__init__(message)
        self.limit = limit
        self.retry_after = retry_after


class QueueFull(LimitExceeded):
    """The number of queued jobs has reached the limit of the service, a project, a caller or a queue."""

    def __init__(self, queued: int, project: str = "", *, caller: str = "", queue: str = "") -> None:
        """Name the limit of `project`, `caller` or `queue`; if all are empty, the limit of the service."""
        of, setting, limit = "", "scheduling.max_queued", "scheduling.max_queued"
        if project:
            of, setting = f" of project {project}", f"projects.{project}.max_queued"
            limit = "projects.max_queued"
        elif caller:
            of, setting = f" of caller {quoted(caller)}", "scheduling.max_queued_of_caller"
            limit = setting
        elif queue:
            of, setting = f" of queue {queue}", "max_queued of the queue"
            limit = "scheduling.queues.max_queued"
        jobs, are = ("job", "is") if queued == 1 else ("jobs", "are")
        super().__init__(
            f"{queued} {jobs}{of} {are} queued, which is the limit ({setting}); try again when some of them "
            "have started",
            limit=limit,
            retry_after=_QUEUE_SECONDS,
        )


class RateExceeded(LimitExceeded):
    """A caller makes calls at a higher rate than it may. The refused call has had no effect."""

    def __init__(self, problem: str, *, setting: str, wait: float) -> None:
        """`wait` is the number of seconds until the next call is allowed."""
        # With a shorter wait, the caller would repeat its refused calls almost without a pause.
        seconds = max(wait, _SHORTEST_WAIT)
        super().__init__(
            f"{problem} ({setting}); try again in {seconds:.1f} s", limit=setting, retry_after=seconds
        )


class TooManyTokens(LimitExceeded):
    """The service, or the project, already has as many valid tokens as are allowed."""

    def __init__(self, most: int, project: str = "") -> None:
        setting = "limits.tokens_of_project" if project else "limits.tokens"
        super().__init__(
            f"there are {most} tokens{f' of project {project}' if project else ''}, which is the limit "
            f"({setting}); revoke some with `trainctl token revoke`",
            limit=setting,
        )


class TooManyDeclarations(LimitExceeded):
    """The number of declarations has reached the limit of the service, or of a project."""

    def __init__(self, most: int, project: str = "") -> None:
        super().__init__(
            f"{most} algorithms, datasets and queues{f' of project {project}' if project else ''} are "
            "declared by the API, which is the limit; remove some, or put some into a file of the service",
            limit="declarations",
        )


class NotAllowed(TrackerError):
    """The caller did not prove that it may do this. The message says what is missing."""

    def __init__(self, message: str, *, caller: str = "", credential: str = "") -> None:
        """`caller` is the caller's name, and `credential` the id of the caller's token, if known."""
        super().__init__(message)
        self.caller = caller
        self.credential = credential


class Forbidden(TrackerError):
    """The caller is known, but may not do this. The message names the role that is needed."""


class NotPossible(TrackerError):
    """The present state of the object does not allow this. The message says what to do first."""


class AttemptOver(TrackerError):
    """A report for an attempt that is no longer running: it has ended, or a later attempt has replaced it."""

    def __init__(self, job_id: int, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of job {job_id} is no longer running; its reports are not kept")


class IllegalMove(TrackerError):
    """A move between states that is not in TRANSITIONS, or that a decided ending rules out."""

    def __init__(self, job_id: int, source: str, target: str) -> None:
        super().__init__(f"job {job_id} cannot move from {source} to {target}")


class StaleJob(TrackerError):
    """The job has changed since it was read. Read it again and decide again."""

    def __init__(self, job_id: int, version: int) -> None:
        super().__init__(f"job {job_id} is no longer at version {version}")


class LeadershipLost(TrackerError):
    """Only the leader may do this, and its term is over: another replica may lead."""


class StoreUnavailable(TrackerError):
    """The store does not answer. A write may or may not have taken effect; calls may be repeated."""


class StoreLost(StoreUnavailable):
    """The store can never write again, so the service has to end. The message says which jobs are safe."""


class StoreRefused(TrackerError):
    """The store cannot be opened. No job in it was changed."""


class StorageUnavailable(TrackerError):
    """The storage of datasets or logs does not answer, or denies access."""


class TreeDamaged(TrackerError):
    """Files of an uploaded tree are gone from the service's disk, or changed. The message names the files."""


class LaunchFailed(TrackerError):
    """A group cannot be launched. The attempt ends with this diagnosis."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(f"{diagnosis.summary} {diagnosis.resolution}")
        self.diagnosis = diagnosis


class BackendUnavailable(TrackerError):
    """The engine does not answer. The call may be repeated."""


class NoRoom(BackendUnavailable):
    """This machine lacks descriptors, processes, memory or disk for a launch. The message says what to do."""


class BackendRefused(TrackerError):
    """The engine cannot be used as configured: it does not exist, or it denies access."""


class LogsNotFound(TrackerError):
    """The log of this group and rank does not exist yet, or no longer exists."""
