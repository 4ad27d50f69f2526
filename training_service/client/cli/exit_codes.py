"""The exit codes of trainctl."""

from enum import IntEnum

from training_service._generated.training_service_pb2 import TrainingStatus
from training_service.client.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    ServerError,
    TrainingServiceError,
    Unavailable,
    Untrusted,
    WaitTimedOut,
)


class ExitCode(IntEnum):
    """The exit codes, which are stable.

    Commands that follow a job, such as watch, wait, run and submit --follow, return its outcome. Commands
    that run a sweep or a study return 0 if it is complete and has a result. Other commands return 0 on
    success.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        """Create a code with its meaning, for --help."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    OK = 0, "success; a followed job succeeded"
    JOB_FAILED = 1, "the followed job failed, the sweep is incomplete or has no result, or nothing was found"
    INVALID_REQUEST = 2, "wrong usage, or an invalid request"
    NOT_FOUND = 3, "no such job, algorithm, dataset, version or other object"
    UNAVAILABLE = 4, "the service cannot be reached or does not answer"
    JOB_CANCELLED = 5, "the followed job was cancelled"
    WAIT_TIMED_OUT = 6, "the wait timed out; the job goes on"
    REFUSED = 7, "refused: no room, request key in use, not allowed, or wrong state"
    SERVER_ERROR = 8, "internal error of the service"
    INTERRUPTED = 130, "interrupted with Ctrl-C; the job goes on"
    BROKEN_PIPE = 141, "the reader of the output has closed it"


_OF_ERRORS: dict[type[TrainingServiceError], ExitCode] = {
    InvalidRequest: ExitCode.INVALID_REQUEST,
    NotFound: ExitCode.NOT_FOUND,
    Unavailable: ExitCode.UNAVAILABLE,
    Untrusted: ExitCode.UNAVAILABLE,
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
    """Return the exit code of a failed call."""
    return next((code for kind, code in _OF_ERRORS.items() if isinstance(error, kind)), ExitCode.REFUSED)


def of_outcome(status: TrainingStatus.ValueType) -> ExitCode:
    """Return the exit code of a job's outcome. For an unknown outcome, it is SERVER_ERROR."""
    return _OF_OUTCOMES.get(status, ExitCode.SERVER_ERROR)
