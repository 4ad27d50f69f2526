"""How this client connects: the address, the channel's options, and what the channel retries.

Every channel is made here. They are plain text for now; credentials will be decided in these two
functions and nowhere else.
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

# Every call of the service may be repeated: Train carries a request key, the others change nothing
# or are idempotent. Streams are another matter: see `client.stream_retry`, and `client.watching`.
# Four retries, 0.2 + 0.4 + 0.8 + 1.6 s apart (±20 %, gRPC's jitter): a service that restarts is
# waited for, and one that is not there is reported after some 3 s.
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

# Of several replicas each gets calls in turn, and one that goes away gets none until it is back: a call
# that it broke off is repeated at another.
_OF_SEVERAL = {**_SERVICE_CONFIG, "loadBalancingConfig": [{"round_robin": {}}]}

_OPTIONS: list[tuple[str, str | int]] = [
    # The first is also how long one attempt to connect may take: an address that swallows packets
    # is given up after 2 s, where gRPC's default is 20 s.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A machine that vanished without a word is noticed on a quiet stream within six minutes. Servers
    # with default settings punish pings that come more often than every five.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # keepalive_timeout_ms has no effect in gRPC 1.85
    ("grpc.http2.max_pings_without_data", 0),
    # A page of a thousand jobs, each with parameters and ranks, exceeds the default of 4 MiB.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
]


def address_or_default(address: str | None) -> str:
    """The address given, else that of TRAINING_SERVICE_ADDRESS, else localhost:51001."""
    return address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS


def open_channel(address: str) -> grpc.Channel:
    """A channel for plain calls. It connects at the first call, not here.

    Raises InvalidRequest for several addresses that are not `target_of` any.
    """
    return grpc.insecure_channel(target_of(address), options=_options(address))


def open_async_channel(address: str) -> grpc.aio.Channel:
    """A channel for the running event loop; see `open_channel`."""
    return grpc.aio.insecure_channel(target_of(address), options=_options(address))


def target_of(address: str) -> str:
    """The address as gRPC wants it.

    Several, separated by commas, are the replicas of one service. gRPC has no way to write several names,
    so they are IP addresses, or `localhost`; a name may have several addresses itself, as `dns:///NAME:PORT`.
    """
    if "," not in address or address.startswith(("ipv4:", "ipv6:")):
        return address
    places = [place.strip().replace("localhost", "127.0.0.1") for place in address.split(",")]
    hosts = [place.rpartition(":")[0].strip("[]") for place in places]
    try:
        (family,) = {ipaddress.ip_address(host).version for host in hosts}
    except ValueError:  # of any of them, or as there are both families
        raise InvalidRequest(
            f"address: {address!r}: several addresses are given as IP:PORT,IP:PORT, all of them IPv4 or all "
            "of them IPv6; a name stands alone"
        ) from None
    return f"ipv{family}:" + ",".join(places)


def _options(address: str) -> list[tuple[str, str | int]]:
    config = _OF_SEVERAL if "," in address else _SERVICE_CONFIG
    return [("grpc.service_config", json.dumps(config)), *_OPTIONS]
