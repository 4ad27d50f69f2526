"""Errors of calls to the API server.

Where no caller handles them, they count as BackendUnavailable: the work is repeated later.
"""

import json
from collections.abc import Mapping
from typing import Any

from job_tracker.domain.errors import BackendUnavailable

_LONGEST_TEXT = 2000


class ApiError(BackendUnavailable):
    """An error answer: its HTTP status (0 without an answer), reason and message.

    `retry_after` is the shortest pause before another try, in seconds; 0 if the server asks for none.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{message} ({status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unreachable(ApiError):
    """No answer, or a temporary refusal. The call may have taken effect."""


class WebhookAway(Unreachable):
    """The webhook that has to approve the call does not answer."""


class Unauthorized(ApiError):
    """The credentials are wrong or have expired."""


class Forbidden(ApiError):
    """The service lacks the permission, or an admission controller refused the request."""


class QuotaExceeded(Forbidden):
    """Too little of the namespace's quota is left for the object."""


class NotFound(ApiError):
    """The object does not exist."""


class Conflict(ApiError):
    """Another writer changed the object, or its uid is not the expected one."""


class AlreadyExists(Conflict):
    """The name is taken. An earlier try whose answer was lost may have created the object."""


class Gone(ApiError):
    """The version at which a list or watch should continue is too old."""


class Invalid(ApiError):
    """The object or the request is invalid."""


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
    """Turn an error answer into an exception, with the message of its `Status` object if it has one."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        content = {"message": body[:_LONGEST_TEXT].decode(errors="replace").strip()}
    return from_status({**content, "code": status}, retry_after)


def from_status(status: Mapping[str, Any], retry_after: str | None = None) -> ApiError:
    """Turn a `Status` object of the API into an exception."""
    code, reason = int(status.get("code") or 0), str(status.get("reason") or "")
    message = str(status.get("message") or "the API server gave no reason")
    kind = _BY_STATUS.get(code, Unreachable if code >= 500 else ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif kind is Unreachable and "failed calling webhook" in message:
        kind = WebhookAway
    elif kind is Forbidden and "exceeded quota" in message:
        kind = QuotaExceeded
    elif kind is Forbidden and "status unknown for quota" in message:
        kind = Unreachable  # the quota is new, and its use is not counted yet
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return kind(code, reason, message, seconds)
