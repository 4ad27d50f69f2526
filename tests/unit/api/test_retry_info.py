"""RetryInfo is sent as other libraries of gRPC read it."""

import grpc
from google.rpc import error_details_pb2, status_pb2

from training_service.api.retry_info import retry_info


def test_it_is_in_a_status_with_the_same_code_and_message() -> None:
    [(key, value)] = retry_info(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls", 1.25)
    assert key == "grpc-status-details-bin"
    status = status_pb2.Status.FromString(value)
    assert (status.code, status.message) == (8, "too many calls")
    info = error_details_pb2.RetryInfo()
    [detail] = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.RetryInfo"
    assert detail.Unpack(info)
    assert info.retry_delay.ToMilliseconds() == 1250


def test_a_long_message_is_not_sent_twice() -> None:
    """An error has to fit in the headers that clients accept."""
    assert retry_info(grpc.StatusCode.RESOURCE_EXHAUSTED, "x" * 2000, 1) == ()
