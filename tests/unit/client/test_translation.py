"""The time after which a refused call may come again is read from the error, and from no malformed one."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import DebugInfo
from google.rpc.status_pb2 import Status

from training_service.api.retry_info import DETAILS_HEADER, retry_info
from training_service.client.errors import ResourceExhausted
from training_service.client.translation import translated_errors

CODE = grpc.StatusCode.RESOURCE_EXHAUSTED


def after(*metadata: tuple[str, str | bytes]) -> float | None:
    error = grpc.aio.AioRpcError(CODE, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details="busy")
    with pytest.raises(ResourceExhausted, match=r"^busy$") as caught, translated_errors("localhost:1"):
        raise error
    return caught.value.retry_after


def with_details(*details: Packed) -> bytes:
    content: bytes = Status(code=8, details=details).SerializeToString()
    return content


def packed(message: DebugInfo) -> Packed:
    detail = Packed()
    detail.Pack(message)
    return detail


def test_the_time_is_in_seconds() -> None:
    assert after(*retry_info(CODE, "busy", 1.5)) == pytest.approx(1.5)
    assert after(("x-request-id", "7"), *retry_info(CODE, "busy", 0)) == 0


@pytest.mark.parametrize(
    "details",
    [
        b"\xff not a message",
        b"",
        with_details(),
        with_details(packed(DebugInfo(detail="slow"))),
        with_details(Packed(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff\xff")),
    ],
)
def test_an_error_without_a_time_or_a_malformed_one_has_none(details: bytes) -> None:
    assert after((DETAILS_HEADER, details)) is None
    assert after() is None
