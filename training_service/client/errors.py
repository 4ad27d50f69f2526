"""What can go wrong between a program and the training service.

    TrainingServiceError
    ├── InvalidRequest       the request cannot succeed as it is; its message names the field
    ├── NotFound             no such job, algorithm, dataset or version
    ├── AlreadyExists        the request key belongs to another request
    ├── ResourceExhausted    no room for it: the queue, the capacity or a quota is full
    ├── FailedPrecondition   not in this state of the job or of the service
    ├── NotAllowed           the service does not know you, or does not let you
    ├── Unavailable          not ready, or it went away: worth trying again
    │   └── Unreachable      no answer at the address
    ├── DeadlineExceeded     no answer in time; what was asked may have been done
    ├── WaitTimedOut         the job has not ended in time; it goes on
    └── ServerError          the service failed, or speaks another version

`str(error)` is a sentence for people, the service's own wherever it gave one. The error of the
gRPC library is the `__cause__`; programs need not know that library to handle these.
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
    "WaitTimedOut",
]


class TrainingServiceError(Exception):
    """The root of the tree: the service did not do what was asked."""


class InvalidRequest(TrainingServiceError):
    """The request cannot succeed as it is: a field is missing, malformed or out of range.

    Also raised, before anything is sent, for a value that the wire cannot carry.
    """


class NotFound(TrainingServiceError):
    """There is no such job, algorithm, dataset or dataset version."""


class AlreadyExists(TrainingServiceError):
    """The request key was used before, for a request with other metadata."""


class ResourceExhausted(TrainingServiceError):
    """There is no room: the queue, the capacity or a quota is full, or the message is too large."""


class FailedPrecondition(TrainingServiceError):
    """The request is sound, but not in the present state of the job or of the service."""


class NotAllowed(TrainingServiceError):
    """The service does not know who asks, or does not let them."""


class Unavailable(TrainingServiceError):
    """The service is starting, stopping or without its store, or the connection to it broke."""


class Unreachable(Unavailable):
    """Nobody answers at the address: a service that is not running, or a wrong address."""


class DeadlineExceeded(TrainingServiceError):
    """No answer within the call's time. What was asked may have been done all the same."""


class WaitTimedOut(TrainingServiceError):
    """The job did not end within the time that `wait` was given. It goes on.

    `status` is the last that was heard of it.
    """

    def __init__(self, message: str, status: GetTrainingStatusResponse) -> None:
        super().__init__(message)
        self.status = status


class ServerError(TrainingServiceError):
    """The service failed inside, or whatever listens at the address speaks another protocol."""
