"""A call without a row in the table of rights is denied before its message is parsed."""

from typing import Any

import grpc
import pytest

from job_tracker.domain import rights
from tests.support.callers import Open
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import (
    TrainingServiceStub,
    add_TrainingServiceServicer_to_server,
)
from training_service.api.interceptors import CallInterceptor
from training_service.api.servicer import TrainingServicer


@pytest.mark.parametrize("rpc", ["GetTrainingStatus", "WatchTraining"])
async def test_a_call_without_a_row_is_denied(monkeypatch: pytest.MonkeyPatch, rpc: str) -> None:
    monkeypatch.setattr(rights, "RPCS", rights.RPCS - {rpc})
    nothing: Any = None
    server = grpc.aio.server()
    add_TrainingServiceServicer_to_server(
        TrainingServicer(nothing), CallInterceptor(lambda *_: None, Open()).on(server)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = getattr(TrainingServiceStub(channel), rpc)(getattr(pb, f"{rpc}Request")())
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await (anext(aiter(call)) if hasattr(call, "__aiter__") else call)
    finally:
        await server.stop(None)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert f"{rpc} is denied: the table of rights has no row for it" in (caught.value.details() or "")
