"""Every call has a caller, which is passed to every operation."""

import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from job_tracker.domain.caller import BUILT_IN, Caller, Role
from job_tracker.domain.errors import JobNotFound
from job_tracker.jobs import Jobs
from tests.support.callers import Open, caller_at
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import (
    TrainingServiceStub,
    add_TrainingServiceServicer_to_server,
)
from training_service.api.interceptors import CallInterceptor
from training_service.api.servicer import TrainingServicer

OPERATIONS = {name: each for name, each in vars(Jobs).items() if callable(each) and name[0] != "_"}
METHODS = [*pb.DESCRIPTOR.services_by_name["TrainingService"].methods_by_name]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_first_argument_of_each_operation_is_the_caller(operation: str) -> None:
    _, first, *_ = inspect.signature(OPERATIONS[operation]).parameters.values()
    assert (first.name, first.annotation, first.default) == ("caller", Caller, inspect.Parameter.empty)
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


class Asked:
    """Replaces Jobs: records the caller of each operation, and has no jobs."""

    def __init__(self) -> None:
        self.by: list[tuple[str, Caller]] = []

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def ask(caller: Caller, *_: object, **__: object) -> Any:
            self.by.append((operation, caller))
            raise JobNotFound(1)

        return ask


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
async def addresses(asked: Asked, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Addresses of the API, by the expected key of a caller that connects to each."""
    server = grpc.aio.server()
    add_TrainingServiceServicer_to_server(
        TrainingServicer(cast(Jobs, asked)), CallInterceptor(lambda *_: None, Open()).on(server)
    )
    port, socket = server.add_insecure_port("127.0.0.1:0"), f"unix:{tmp_path}/socket"
    server.add_insecure_port(socket)
    await server.start()
    yield {"ipv4:127.0.0.1": f"127.0.0.1:{port}", "unix": socket}
    await server.stop(None)


@pytest.mark.parametrize("method", METHODS)
async def test_each_method_passes_on_its_caller(asked: Asked, addresses: dict[str, str], method: str) -> None:
    message = getattr(pb, f"{method}Request")()
    for known_as, address in addresses.items():
        async with grpc.aio.insecure_channel(address) as channel:
            call = getattr(TrainingServiceStub(channel), method)(message)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await (anext(aiter(call)) if hasattr(call, "__aiter__") else call)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        (operation, caller) = asked.by.pop()
        assert operation in OPERATIONS
        assert caller == caller_at(known_as)
        assert not asked.by


def test_the_built_in_caller_has_all_rights() -> None:
    assert BUILT_IN.role_in(BUILT_IN.default_project) is Role.OPERATOR
    assert BUILT_IN.key == "", "the service itself"
    assert caller_at("ipv4:192.0.2.1").key == "ipv4:192.0.2.1"
