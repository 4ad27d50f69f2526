"""Errors of the client.

    TrainingServiceError
    ├── InvalidRequest       the request is invalid; the message names the field
    ├── NotFound             the job, or another object that the call names, does not exist
    ├── AlreadyExists        the request key belongs to another request
    ├── ResourceExhausted    no room in the queue, the capacity or a quota; or too many calls
    ├── FailedPrecondition   not possible in the present state of the job or the service
    ├── NotAllowed           the caller is unknown, or lacks the permission
    ├── Unavailable          the service is not ready or went away: worth a retry
    │   └── Unreachable      no service answers at the address
    ├── Untrusted            the service has no certificate, or one that is not accepted
    ├── DeadlineExceeded     no answer in time; the call may still have taken effect
    ├── WaitTimedOut         the job has not ended in time; it continues
    └── ServerError          the service failed, or speaks another protocol

`str(error)` is a message for people: the service's message if there is one. `__cause__` is the error of the
gRPC library if a call failed.
"""

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse

__all__ = [
    "AlreadyExists",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InvalidRequest",
    "NotAllowed",
    "NotFound",
    "ResourceExhausted",
    "ServerError",
    "TrainingServiceError",
    "Unavailable",
    "Unreachable",
    "Untrusted",
    "WaitTimedOut",
]


class TrainingServiceError(Exception):
    """The base of all errors of the client."""


class InvalidRequest(TrainingServiceError):
    """A field of the request is missing, malformed or out of range.

    The client may raise this error before it sends anything, for example for a value that protobuf cannot
    encode, or for a file that cannot be read.
    """


class NotFound(TrainingServiceError):
    """The job, or another object that the call names, does not exist; for example a dataset or a project."""


class AlreadyExists(TrainingServiceError):
    """The request key has been used for another request."""


class ResourceExhausted(TrainingServiceError):
    """The queue, the capacity or a quota is full, too many calls were made, or the message is too large."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """`retry_after` is the time in seconds after which the call may succeed; None: unknown."""
        super().__init__(message)
        self.retry_after = retry_after


class FailedPrecondition(TrainingServiceError):
    """The request is valid, but not possible in the present state of the job or the service."""


class NotAllowed(TrainingServiceError):
    """The service does not know the caller, or the caller lacks the permission."""


class Unavailable(TrainingServiceError):
    """The service is starting or stopping, or cannot reach its store, or the connection broke."""


class Unreachable(Unavailable):
    """No service answers at the address: it is not running, or the address is wrong."""


class Untrusted(TrainingServiceError):
    """The service's certificate is missing, expired, for another host, or of an unknown authority."""


class DeadlineExceeded(TrainingServiceError):
    """The service did not answer within the call's timeout. The call may still have taken effect."""


class WaitTimedOut(TrainingServiceError):
    """The job did not end within the timeout of `wait`, and continues. `status` is its last known status."""

    def __init__(self, message: str, status: GetTrainingStatusResponse) -> None:
        super().__init__(message)
        self.status = status


class ServerError(TrainingServiceError):
    """The service failed, or the server at the address speaks another protocol."""
