"""The audit as the client asks for it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import grpc
import pytest

from training_service._generated import access_service_pb2 as apb
from training_service.client import AsyncTrainingClient


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


async def test_times_without_a_zone_are_local_times_as_in_lists_of_jobs(in_tokyo: None) -> None:
    asked: list[apb.ListAuditEventsRequest] = []

    async def answer(request: apb.ListAuditEventsRequest, _: object) -> apb.ListAuditEventsResponse:
        asked.append(request)
        return apb.ListAuditEventsResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=apb.ListAuditEventsRequest.FromString,
        response_serializer=apb.ListAuditEventsResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("training.AccessService", {"ListAuditEvents": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncTrainingClient(f"127.0.0.1:{port}") as client:
        since, until = datetime(2026, 11, 20, 10), datetime(2026, 11, 20, 10, tzinfo=UTC)
        assert [each async for each in client.access.events(since=since, until=until)] == []
    await server.stop(0)
    [request] = asked
    assert request.since.ToDatetime() == datetime(2026, 11, 20, 1)
    assert request.until.ToDatetime() == datetime(2026, 11, 20, 10)
