"""What the API server can answer instead of what was asked for: by default, try again later."""

import json
from collections.abc import Mapping
from typing import Any

from job_tracker.domain.errors import BackendUnavailable

_LONGEST_TEXT = 2000


class ApiError(BackendUnavailable):
    """An answer that is an error: its HTTP status (0 without an answer), and the server's words."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{message} ({status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unreachable(ApiError):
    """No answer, or one that says "not now"; the call may have had its effect."""


class Unauthorized(ApiError):
    """The credentials are not accepted: wrong, or expired."""


class Forbidden(ApiError):
    """No permission, or an admission controller said no."""


class QuotaExceeded(Forbidden):
    """The namespace has used up what it may."""


class NotFound(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """Somebody else changed the object, or it is not the one that was meant."""


class AlreadyExists(Conflict):
    """The name is taken, perhaps by a call of ours whose answer was lost."""


class Gone(ApiError):
    """The version that a list or watch goes on from is too old."""


class Invalid(ApiError):
    """The object, or the request, is not allowed to be as it is."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unreachable,
}


def from_answer(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error that an answer is, with the words of the `Status` object in it if there is one."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        told = {"message": body[:_LONGEST_TEXT].decode(errors="replace").strip()}
    return from_status({**told, "code": status}, retry_after)


def from_status(status: Mapping[str, Any], retry_after: str | None = None) -> ApiError:
    """The error that a `Status` object of the API is."""
    code, reason = int(status.get("code") or 0), str(status.get("reason") or "")
    message = str(status.get("message") or "the API server gave no reason")
    kind = _BY_STATUS.get(code, Unreachable if code >= 500 else ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif kind is Forbidden and "exceeded quota" in message:
        kind = QuotaExceeded
    elif kind is Forbidden and "status unknown for quota" in message:
        kind = Unreachable  # a quota that was made a moment ago, and nobody has counted yet
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return kind(code, reason, message, seconds)
