"""A small training service, addresses without a service, both clients and trainctl."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.support.blocking_client import BlockingClient, Connect
from tests.support.fake_service import Server, ServerInThread
from tests.support.patience import PATIENCE
from tests.support.trainctl import Trainctl
from training_service.client import TrainingClient, channel, stream_retry


@pytest.fixture
def training() -> Iterator[ServerInThread]:
    """A running service for blocking tests."""
    server = ServerInThread()
    yield server
    server.close()


@pytest.fixture
async def async_training() -> AsyncIterator[Server]:
    """A running service on the test's own event loop."""
    server = Server()
    await server.start()
    yield server
    await server.close()


@pytest.fixture(params=[TrainingClient, BlockingClient], ids=["plain", "async"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """The plain client, then the async one."""
    connect: Connect = request.param
    return connect


@pytest.fixture
def client(training: ServerInThread, connect: Connect) -> Iterator[TrainingClient]:
    """The plain client, then the async one, connected to the running service."""
    with connect(training.address) as client:
        yield client


@pytest.fixture
def trainctl(training: ServerInThread) -> Trainctl:
    return Trainctl(training.address)


@pytest.fixture
def trainctl_at() -> Callable[[str], Trainctl]:
    return Trainctl


@pytest.fixture
def fast_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients give up at once if their connection is refused."""
    # This option is the time limit of one attempt to connect. It must not end an attempt that is only slow.
    monkeypatch.setattr(channel, "_OPTIONS", [("grpc.min_reconnect_backoff_ms", int(PATIENCE * 1000))])
    [methods] = channel._SERVICE_CONFIG["methodConfig"]
    monkeypatch.setitem(methods, "retryPolicy", {**methods["retryPolicy"], "initialBackoff": "0.01s"})
    monkeypatch.setattr(stream_retry, "PAUSES", (0.01,) * len(stream_retry.PAUSES))


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address that refuses connections; its port stays reserved during the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
