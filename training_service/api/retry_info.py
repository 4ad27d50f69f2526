"""Says when a call may be repeated, in gRPC's standard form: google.rpc.RetryInfo in google.rpc.Status."""

from typing import Final

from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

DETAILS_HEADER: Final = "grpc-status-details-bin"
"""Metadata key of a serialized google.rpc.Status."""
_LONGEST_MESSAGE: Final = 1024


def retry_info(code: StatusCode, message: str, seconds: float) -> tuple[tuple[str, bytes], ...]:
    """Return metadata for an error. It says that the call may be repeated after `seconds`.

    The metadata has a copy of the message, as gRPC requires. If the message is too long to be sent twice,
    there is no metadata.
    """
    if len(message) > _LONGEST_MESSAGE:
        return ()
    info = RetryInfo()
    info.retry_delay.FromMilliseconds(round(1000 * seconds))
    status = Status(code=code.value[0], message=message)
    status.details.add().Pack(info)
    return ((DETAILS_HEADER, status.SerializeToString()),)
