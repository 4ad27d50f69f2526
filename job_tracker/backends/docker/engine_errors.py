"""What the engine can answer instead of what was asked for: by default, try again later."""

from job_tracker.domain.errors import BackendUnavailable

_LONGEST_TEXT = 2000


class EngineError(BackendUnavailable):
    """An answer that is an error: its HTTP status (0 without an answer), and the engine's words."""

    def __init__(self, status: int, message: str) -> None:
        self.message = message[:_LONGEST_TEXT]
        self.status = status
        super().__init__(f"the Docker engine: {self.message}" + (f" ({status})" if status else ""))


class Unreachable(EngineError):
    """No answer, or not in time; the call may have had its effect."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class NotFound(EngineError):
    """There is no such thing."""


class Conflict(EngineError):
    """The name is taken, or what is there is not in the state that the call is about."""


class Refused(EngineError):
    """The engine cannot, or will not, do it as it was asked to."""


_BY_STATUS: dict[int, type[EngineError]] = {404: NotFound, 409: Conflict}


def from_answer(status: int, message: str) -> EngineError:
    """The error of an answer with this HTTP status."""
    return _BY_STATUS.get(status, Refused)(status, message)
