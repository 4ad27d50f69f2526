"""Errors of calls to the engine.

Where no caller handles them, they count as BackendUnavailable: the work is repeated later.
"""

from job_tracker.domain.errors import BackendUnavailable

_LONGEST_TEXT = 2000


class EngineError(BackendUnavailable):
    """An error with its HTTP status (0 without an answer) and the message of the engine."""

    def __init__(self, status: int, message: str) -> None:
        self.message = message[:_LONGEST_TEXT]
        self.status = status
        super().__init__(f"the Docker engine: {self.message}" + (f" ({status})" if status else ""))


class Unreachable(EngineError):
    """The engine cannot be reached, or did not answer in time. The call may have taken effect."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class NotFound(EngineError):
    """The object does not exist."""


class Conflict(EngineError):
    """The name is taken, or the object is not in the required state."""


class Refused(EngineError):
    """The engine cannot execute the request, or does not accept it."""


_BY_STATUS: dict[int, type[EngineError]] = {404: NotFound, 409: Conflict}


def from_answer(status: int, message: str) -> EngineError:
    """Return the error for an answer with this HTTP status."""
    return _BY_STATUS.get(status, Refused)(status, message)
