"""Listening at `localhost`: at all of its loopback addresses, or at none."""

import socket
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest

from training_service.serving import CannotServe, Listener
from training_service.settings.addresses import loopback_hosts


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    made = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    yield made
    await made.stop(None)


def listening(host: str, port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family)


async def test_no_loopback_address_is_left_to_another_program(server: grpc.aio.Server) -> None:
    port = Listener("server.address", "localhost:0").bind(server)
    await server.start()
    for host in loopback_hosts():
        with pytest.raises(OSError, match="Address already in use"):
            listening(host, port)


@pytest.mark.parametrize("host", loopback_hosts())
async def test_a_loopback_address_of_another_program_is_refused(server: grpc.aio.Server, host: str) -> None:
    with listening(host) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        with pytest.raises(CannotServe, match=f"server.address: cannot listen at {address}"):
            Listener("server.address", address).bind(server)


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("localhost:1", loopback_hosts()),
        ("LocalHost:1", loopback_hosts()),
        ("127.0.0.1:1", ["127.0.0.1"]),
        ("[::]:1", ["[::]"]),
    ],
)
def test_each_address_that_the_server_binds_counts(address: str, hosts: Sequence[str]) -> None:
    """Since gRPC bounds the connections of each of them."""
    assert list(Listener("server.address", address).hosts) == list(hosts)
