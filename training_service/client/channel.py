"""Connections to the service: the address, the channel's options and its retries.

Every channel of the client is opened here, so far without TLS or credentials.
"""

import ipaddress
import json
import os
from typing import Any

import grpc

from training_service._generated import training_service_pb2
from training_service.client.errors import InvalidRequest

_SERVICE = training_service_pb2.DESCRIPTOR.services_by_name["TrainingService"]

ADDRESS_VARIABLE = "TRAINING_SERVICE_ADDRESS"
DEFAULT_ADDRESS = "localhost:51001"

# Every call may be repeated: Train carries a request key, and the others are idempotent. For streams, see
# `client.stream_retry` and `client.watching`. The four retries come after 0.2, 0.4, 0.8 and 1.6 s (±20 %,
# gRPC's jitter): long enough for a restart of the service. An unreachable service is reported after about 3
# s.
_SERVICE_CONFIG: dict[str, Any] = {
    "methodConfig": [
        {
            "name": [
                {"service": _SERVICE.full_name, "method": method.name}
                for method in _SERVICE.methods
                if not method.server_streaming
            ],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.2s",
                "backoffMultiplier": 2,
                "maxBackoff": "2s",
                "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
            },
        }
    ]
}

# Calls go to the connected replicas in turn. A call that one replica aborts is repeated with another.
_SERVICE_CONFIG_OF_REPLICAS = {**_SERVICE_CONFIG, "loadBalancingConfig": [{"round_robin": {}}]}

_OPTIONS: list[tuple[str, str | int]] = [
    # The first option also bounds one attempt to connect: an address that drops packets fails after 2 s.
    # gRPC's default is 20 s.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A quiet stream notices within six minutes that the server's machine is gone. Servers with default
    # settings close connections that send pings more often than every five minutes.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # keepalive_timeout_ms has no effect in gRPC 1.85
    ("grpc.http2.max_pings_without_data", 0),
    # A page of a thousand jobs, each with parameters and ranks, exceeds the default of 4 MiB.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
]


def address_or_default(address: str | None) -> str:
    """Return the given address, or that of TRAINING_SERVICE_ADDRESS, or localhost:51001."""
    return address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS


def open_channel(address: str) -> grpc.Channel:
    """Open a channel for blocking calls. It connects at the first call.

    Raises InvalidRequest for an invalid list of addresses (see `target_of`).
    """
    return grpc.insecure_channel(target_of(address), options=_options(address))


def open_async_channel(address: str) -> grpc.aio.Channel:
    """Open a channel for the running event loop; see `open_channel`."""
    return grpc.aio.insecure_channel(target_of(address), options=_options(address))


def target_of(address: str) -> str:
    """Return the gRPC target of an address.

    Several addresses, separated by commas, are the replicas of one service. They are IP addresses or
    `localhost`, since a gRPC target cannot list several names. A single name, `dns:///NAME:PORT`, may
    resolve to several addresses. Raises InvalidRequest for an invalid list.
    """
    if "," not in address or address.startswith(("ipv4:", "ipv6:")):
        return address
    places = [place.strip().replace("localhost", "127.0.0.1") for place in address.split(",")]
    hosts = [place.rpartition(":")[0].strip("[]") for place in places]
    try:
        (family,) = {ipaddress.ip_address(host).version for host in hosts}
    except ValueError:  # an invalid address, or both families
        raise InvalidRequest(
            f"address: {address!r}: write several addresses as IP:PORT,IP:PORT, either all IPv4 or all IPv6; "
            "a host name must be the only address"
        ) from None
    return f"ipv{family}:" + ",".join(places)


def _options(address: str) -> list[tuple[str, str | int]]:
    config = _SERVICE_CONFIG_OF_REPLICAS if "," in address else _SERVICE_CONFIG
    return [("grpc.service_config", json.dumps(config)), *_OPTIONS]
