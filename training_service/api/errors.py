"""Maps errors of the domain to status codes and messages.

Besides the code and the message, clients get only the request id, and for some errors the time after which to
try again (retry_info.py).
"""

import grpc

from job_tracker.domain import errors
from job_tracker.trees.operations import UploadTooLong


class ServiceClosing(errors.TrackerError):
    """Raised when a stream ends because the service stops."""

    def __init__(self) -> None:
        super().__init__("the service is restarting; connect again")


# The first matching row applies, so subclasses come first.
_CODES: tuple[tuple[type[errors.TrackerError], grpc.StatusCode], ...] = (
    (errors.UnknownReference, grpc.StatusCode.NOT_FOUND),
    (errors.InvalidField, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.JobNotFound, grpc.StatusCode.NOT_FOUND),
    (errors.LogsNotFound, grpc.StatusCode.NOT_FOUND),
    (errors.RequestKeyConflict, grpc.StatusCode.ALREADY_EXISTS),
    (errors.NotAllowed, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (errors.NotPossible, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.AttemptOver, grpc.StatusCode.FAILED_PRECONDITION),
    (UploadTooLong, grpc.StatusCode.UNAVAILABLE),
    (errors.LimitExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.StoreUnavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.StorageUnavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.TreeDamaged, grpc.StatusCode.FAILED_PRECONDITION),
    (ServiceClosing, grpc.StatusCode.UNAVAILABLE),
    (errors.BackendUnavailable, grpc.StatusCode.UNAVAILABLE),
)


def status_of(error: errors.TrackerError) -> tuple[grpc.StatusCode, str] | None:
    """Return the status code and message for a client; None for an error that no call should raise."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code, str(error)
    return None
