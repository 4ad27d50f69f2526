"""The gRPC library's errors in our words: the only module that knows both."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import grpc

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
)

# A code that is not here (INTERNAL, UNKNOWN, DATA_LOSS, UNIMPLEMENTED, CANCELLED by the server,
# or one that gRPC adds one day) is a ServerError.
_ERRORS: dict[grpc.StatusCode, type[TrainingServiceError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: FailedPrecondition,
    grpc.StatusCode.UNAUTHENTICATED: NotAllowed,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # By the service, which ends calls so that its orderly stop finds in progress.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}

# How the details begin when they are gRPC's own and no server was reached. If a version of gRPC
# words them otherwise, the sentence becomes longer and Unreachable plain Unavailable; no more.
_NOBODY_THERE = ("failed to connect", "errors resolving", "DNS resolution failed")


class _Failure(Protocol):
    """What grpc.Call and grpc.aio.AioRpcError have in common; they share no typed base class."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...


class _Stream(Protocol):
    """What the streams of both libraries have in common."""

    def cancel(self) -> bool | None: ...


S = TypeVar("S", bound=_Stream)


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """Within it, a gRPC error becomes the TrainingServiceError that stands for it."""
    try:
        yield
    except grpc.RpcError as error:
        raise _translate(cast(_Failure, error), address) from error


@contextmanager
def reading(stream: S, address: str) -> Iterator[S]:
    """A stream with translated errors, given up at the server too when its reader leaves early."""
    try:
        with translated_errors(address):
            yield stream
    finally:
        stream.cancel()


def _translate(failure: _Failure, address: str) -> TrainingServiceError:
    code, details = failure.code(), failure.details() or ""
    kind = _ERRORS.get(code, ServerError)
    if kind is Unavailable:
        return _unavailable(details, address)
    if kind is DeadlineExceeded:
        return DeadlineExceeded(f"the training service at {address} did not answer in time")
    if kind is ServerError:
        return ServerError(
            f"the training service at {address} failed: {details or 'no details'} ({code.name})"
        )
    return kind(details or code.name)


def _unavailable(details: str, address: str) -> Unavailable:
    if not details.startswith(_NOBODY_THERE):
        return Unavailable(f"the training service at {address} is unavailable: {details or 'no details'}")
    # "failed to connect to all addresses; last error: UNKNOWN: ipv4:…: …: Connection refused"
    reason = details.rpartition(": ")[2].rstrip("]")
    return Unreachable(f"cannot reach the training service at {address}: {reason}")
