"""The Python client of the training service.

`TrainingClient` is for plain programs, `AsyncTrainingClient` for asyncio. Most of their methods return
messages of the API, which the files in `proto` define. The command line `trainctl` uses `TrainingClient`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from training_service._generated.training_service_pb2 import (
    Deadlines,
    Placement,
    PodOptions,
    RetryPolicy,
    Toleration,
    TrainingStatus,
)
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
    Untrusted,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from training_service.client.aio import AsyncTrainingClient
    from training_service.client.sync import TrainingClient

__all__ = [
    "AlreadyExists",
    "AsyncTrainingClient",
    "DeadlineExceeded",
    "Deadlines",
    "FailedPrecondition",
    "InvalidRequest",
    "NotAllowed",
    "NotFound",
    "Placement",
    "PodOptions",
    "ResourceExhausted",
    "RetryPolicy",
    "ServerError",
    "Toleration",
    "TrainingClient",
    "TrainingServiceError",
    "TrainingStatus",
    "Unavailable",
    "Unreachable",
    "Untrusted",
    "WaitTimedOut",
]

# Both modules are imported at first use. They import gRPC, which reads its settings when it is imported, and
# trainctl sets one of these settings before that (see `client.cli`).
_MODULES = {
    "AsyncTrainingClient": "training_service.client.aio",
    "TrainingClient": "training_service.client.sync",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
