"""Translates errors of the gRPC library to errors of the client."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError

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
)

# Every other code (INTERNAL, UNKNOWN, DATA_LOSS, UNIMPLEMENTED or a new one) is a ServerError.
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
    # When a service stops, it cancels the calls in progress.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}

# If no server was reached, gRPC's error details begin with one of these texts. If gRPC changes the texts, the
# client raises Unavailable, with a longer message, in place of Unreachable and Untrusted.
_NOT_REACHED = ("failed to connect", "errors resolving", "DNS resolution failed")

# Parts of gRPC's error details if a handshake failed, and what they mean. The first match is used.
_UNTRUSTED = {
    "certificate has expired": "its certificate has expired",
    "CERTIFICATE_VERIFY_FAILED": "its certificate was issued by an authority that is not in ca (--ca)",
    "Hostname Verification Check failed": "its certificate is for another host; connect to a name in the "
    "certificate, or give such a name as server_name (--server-name)",
    "WRONG_VERSION_NUMBER": "it does not use TLS; leave out ca and cert (--ca, --cert)",
}
_DETAILS_HEADER = "grpc-status-details-bin"
_CLOSED = "Socket closed"
_MAY_NEED_TLS = (
    "it closed the connection; it may need TLS (--ca), or another client certificate (--cert, --key), or be "
    "stopping"
)


class _Failure(Protocol):
    """The common methods of grpc.Call and grpc.aio.AioRpcError, which share no typed base class."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


class _Stream(Protocol):
    """The method that blocking and asyncio streams share."""

    def cancel(self) -> bool | None: ...


S = TypeVar("S", bound=_Stream)


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """Translate a gRPC error in the block to a TrainingServiceError."""
    try:
        yield
    except grpc.RpcError as error:
        raise _translate(cast(_Failure, error), address) from error


@contextmanager
def reading(stream: S, address: str) -> Iterator[S]:
    """Yield the stream, and translate its errors in the block. At the end of the block, cancel the stream."""
    try:
        with translated_errors(address):
            yield stream
    finally:
        stream.cancel()


def _translate(failure: _Failure, address: str) -> TrainingServiceError:
    code, details = failure.code(), failure.details() or ""
    kind = _ERRORS.get(code, ServerError)
    if kind is Unavailable:
        return _untrusted(details, address) or _unavailable(details, address)
    if kind is DeadlineExceeded:
        return DeadlineExceeded(f"the training service at {address} did not answer in time")
    if kind is ServerError:
        return ServerError(
            f"the training service at {address} failed: {details or 'no details'} ({code.name})"
        )
    if kind is ResourceExhausted:
        return ResourceExhausted(details or code.name, _retry_after(failure))
    return kind(details or code.name)


def _retry_after(failure: _Failure) -> float | None:
    """Return the seconds in the google.rpc.RetryInfo of an error; None if it is missing or malformed."""
    # Imported only here, because most users of the client never need these modules.
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    info = RetryInfo()
    for key, value in failure.trailing_metadata() or ():
        if key == _DETAILS_HEADER and isinstance(value, bytes):
            try:
                found = any(detail.Unpack(info) for detail in Status.FromString(value).details)
            except DecodeError:
                return None
            seconds: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
            return max(0.0, seconds) if found else None
    return None


def _unavailable(details: str, address: str) -> Unavailable:
    if not details.startswith(_NOT_REACHED):
        return Unavailable(f"the training service at {address} is unavailable: {details or 'no details'}")
    # "failed to connect to all addresses; last error: UNKNOWN: ipv4:…: …: Connection refused"
    reason = details.rpartition(": ")[2].rstrip("]")
    if reason == _CLOSED:
        reason = _MAY_NEED_TLS
    return Unreachable(f"cannot reach the training service at {address}: {reason}")


def _untrusted(details: str, address: str) -> Untrusted | None:
    if details.startswith(_NOT_REACHED):
        for part, meaning in _UNTRUSTED.items():
            if part in details:
                return Untrusted(f"the service at {address} is not trusted: {meaning}")
    return None
