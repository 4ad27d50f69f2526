"""Pages for errors: what happened and what to do, and never a traceback."""

from dataclasses import dataclass
from typing import Final

import grpc

from job_tracker.domain.errors import LimitExceeded, StoreUnavailable, TrackerError
from training_service.api.errors import status_of
from training_service.web.shield import MOST_BODY, TooLarge

_STATUSES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}
_TITLES: Final = {
    400: "Invalid input",
    401: "Log in",
    403: "You may not do this",
    404: "Not found",
    409: "Not possible in the present state",
    413: "Too large",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available at the moment",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a page shows it."""

    status: int
    code: grpc.StatusCode
    message: str
    title: str
    retry_after: float | None = None
    """Seconds after which the same request may succeed."""


class PageNotFound(TrackerError):
    """No page has this address."""


class FormTooOld(TrackerError):
    """The form was made in another session."""


def failure_of(error: Exception) -> Failure | None:
    """Return the failure that a page shows for the error; None if the service did not raise the error on
    purpose.
    """
    if isinstance(error, PageNotFound):
        return _failure(grpc.StatusCode.NOT_FOUND, str(error))
    if isinstance(error, FormTooOld):
        return _failure(grpc.StatusCode.PERMISSION_DENIED, str(error), title="This page is too old")
    if isinstance(error, TooLarge):
        message = f"the request is too large; at most {MOST_BODY} bytes are allowed"
        return Failure(413, grpc.StatusCode.INVALID_ARGUMENT, message, _TITLES[413])
    if not isinstance(error, TrackerError) or (found := status_of(error)) is None:
        return None
    code, message = found
    if isinstance(error, StoreUnavailable):
        return _failure(code, message, title="The job store does not answer", retry_after=5.0)
    after = error.retry_after if isinstance(error, LimitExceeded) else None
    return _failure(code, message, retry_after=after)


def internal(request_id: str) -> Failure:
    """Return the failure for an error of the service itself.

    The page does not have the reason of the error. The service's log has it.
    """
    message = f"the service's log has the reason under request id {request_id}"
    return _failure(grpc.StatusCode.INTERNAL, message)


def _failure(
    code: grpc.StatusCode, message: str, *, title: str = "", retry_after: float | None = None
) -> Failure:
    status = _STATUSES.get(code, 500)
    return Failure(status, code, message, title or _TITLES[status], retry_after)
