"""What trainctl tells a script when it ends."""

from enum import IntEnum

from training_service._generated.training_service_pb2 import TrainingStatus
from training_service.client.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    ServerError,
    TrainingServiceError,
    Unavailable,
    WaitTimedOut,
)


class ExitCode(IntEnum):
    """The exit codes, a stable contract. Commands that follow a job (watch, wait, submit --follow)
    end with the job's outcome; the others with 0 when they did what they were asked.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        """A number that knows its meaning; --help lists them."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    OK = 0, "done; a followed job succeeded"
    JOB_FAILED = 1, "the followed job failed; a sweep with too many failures, or no result"
    INVALID_REQUEST = 2, "wrong usage, or the service finds the request invalid"
    NOT_FOUND = 3, "no such job, algorithm, dataset or version"
    UNAVAILABLE = 4, "the service is not there, or does not answer"
    JOB_CANCELLED = 5, "the followed job was cancelled"
    WAIT_TIMED_OUT = 6, "the time to wait is up; the job goes on"
    REFUSED = 7, "refused: no room, request key in use, not allowed, not in this state"
    SERVER_ERROR = 8, "the service failed inside"
    INTERRUPTED = 130, "interrupted with Ctrl-C; the job goes on"
    BROKEN_PIPE = 141, "whoever read the output went away"


_OF_ERRORS: dict[type[TrainingServiceError], ExitCode] = {
    InvalidRequest: ExitCode.INVALID_REQUEST,
    NotFound: ExitCode.NOT_FOUND,
    Unavailable: ExitCode.UNAVAILABLE,
    DeadlineExceeded: ExitCode.UNAVAILABLE,
    WaitTimedOut: ExitCode.WAIT_TIMED_OUT,
    ServerError: ExitCode.SERVER_ERROR,
}

_OF_OUTCOMES: dict[TrainingStatus.ValueType, ExitCode] = {
    TrainingStatus.succeed: ExitCode.OK,
    TrainingStatus.failure: ExitCode.JOB_FAILED,
    TrainingStatus.cancelled: ExitCode.JOB_CANCELLED,
}


def of_error(error: TrainingServiceError) -> ExitCode:
    """The exit code for a call that failed."""
    return next((code for kind, code in _OF_ERRORS.items() if isinstance(error, kind)), ExitCode.REFUSED)


def of_outcome(status: TrainingStatus.ValueType) -> ExitCode:
    """The exit code for how a job ended; an outcome that this version does not know is not a success."""
    return _OF_OUTCOMES.get(status, ExitCode.SERVER_ERROR)
