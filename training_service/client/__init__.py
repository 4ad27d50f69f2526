"""The Python client of the training service.

`TrainingClient` for plain programs, `AsyncTrainingClient` for asyncio. Their methods return the
messages of `proto/training_service.proto`. The command line on top of them is `trainctl`.
"""

from training_service._generated.training_service_pb2 import TrainingStatus
from training_service.client.aio import AsyncTrainingClient
from training_service.client.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    NotAllowed,
    NotFound,
    ResourceExhausted,
    ServerError,
    TrainingServiceError,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)
from training_service.client.sync import TrainingClient

__all__ = [
    "AlreadyExists",
    "AsyncTrainingClient",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InvalidRequest",
    "NotAllowed",
    "NotFound",
    "ResourceExhausted",
    "ServerError",
    "TrainingClient",
    "TrainingServiceError",
    "TrainingStatus",
    "Unavailable",
    "Unreachable",
    "WaitTimedOut",
]
