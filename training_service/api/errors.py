"""Which status code each error of the domain becomes. Nothing else of an exception reaches a client."""

import grpc

from job_tracker.domain import errors


class ServiceClosing(errors.TrackerError):
    """A stream is ended because the service is."""

    def __init__(self) -> None:
        super().__init__("the service is being restarted; connect again")


# The first row that an error is an instance of counts, so the more special ones come first.
_CODES: tuple[tuple[type[errors.TrackerError], grpc.StatusCode], ...] = (
    (errors.UnknownReference, grpc.StatusCode.NOT_FOUND),
    (errors.InvalidField, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.JobNotFound, grpc.StatusCode.NOT_FOUND),
    (errors.LogsNotFound, grpc.StatusCode.NOT_FOUND),
    (errors.RequestKeyConflict, grpc.StatusCode.ALREADY_EXISTS),
    (errors.NotAllowed, grpc.StatusCode.UNAUTHENTICATED),
    (errors.AttemptOver, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.LimitExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.StoreUnavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.StorageUnavailable, grpc.StatusCode.UNAVAILABLE),
    (ServiceClosing, grpc.StatusCode.UNAVAILABLE),
    (errors.BackendUnavailable, grpc.StatusCode.UNAVAILABLE),
)


def status_of(error: errors.TrackerError) -> tuple[grpc.StatusCode, str] | None:
    """The code and the sentence that a client gets; None for an error that no call should meet."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code, str(error)
    return None
