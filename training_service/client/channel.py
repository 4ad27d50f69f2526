"""Channels to the service: their targets, options and retries. Every channel of the client is opened here."""

import ipaddress
import json
import re
from typing import Any

import grpc

from training_service._generated import (
    access_service_pb2,
    catalog_service_pb2,
    program_service_pb2,
    training_service_pb2,
)
from training_service.client.connection import Connection
from training_service.client.errors import InvalidRequest

_SERVICE = training_service_pb2.DESCRIPTOR.services_by_name["TrainingService"]
_ACCESS = access_service_pb2.DESCRIPTOR.services_by_name["AccessService"]
_PROGRAMS = program_service_pb2.DESCRIPTOR.services_by_name["ProgramService"]
_CATALOG = catalog_service_pb2.DESCRIPTOR.services_by_name["CatalogService"]
_NOT_REPEATED = (
    *("CreateToken", "DeleteProject", "RemoveMember", "RotateReportKey"),
    *("RemoveAlgorithm", "RemoveDataset", "RemoveQueue"),
)

# Calls without streams may be repeated, except _NOT_REPEATED: Train carries a request key, and the others do
# no harm if repeated. For streams, see `client.stream_retry` and `client.watching`. The pauses before the
# four retries are 0.2, 0.4, 0.8 and 1.6 s (±20 %, gRPC's jitter). Together, they are long enough for a
# restart of the service. An unreachable service is reported after about 3 s.
_SERVICE_CONFIG: dict[str, Any] = {
    "methodConfig": [
        {
            "name": [
                {"service": service.full_name, "method": method.name}
                for service in (_SERVICE, _ACCESS, _PROGRAMS, _CATALOG)
                for method in service.methods
                if not (method.server_streaming or method.client_streaming)
                and method.name not in _NOT_REPEATED
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

# Calls go to the connected replicas in turn. If a replica stops during a call that may be repeated, the call
# is repeated on another one.
_SERVICE_CONFIG_OF_REPLICAS = {**_SERVICE_CONFIG, "loadBalancingConfig": [{"round_robin": {}}]}

_OPTIONS: list[tuple[str, str | int]] = [
    # This option is also the time limit of one attempt to connect: an address that drops packets fails after
    # 2 s. gRPC's default is 20 s.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # With pings, a stream without messages ends within six minutes after the server's machine is gone.
    # Servers with default settings close connections that send pings more often than every five minutes.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # keepalive_timeout_ms has no effect in gRPC 1.85
    ("grpc.http2.max_pings_without_data", 0),
    # A page of a thousand jobs, each with parameters and ranks, exceeds the default of 4 MiB.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
]


def open_channel(connection: Connection) -> grpc.Channel:
    """Open a channel for blocking calls. It connects at the first call.

    Raises InvalidRequest for an invalid address (see `target_of`), and for unusable files or options of TLS.
    """
    target, options = target_of(connection.address), _options(connection)
    if credentials := connection.credentials:
        return grpc.secure_channel(target, credentials, options)
    return grpc.insecure_channel(target, options)


def open_async_channel(connection: Connection) -> grpc.aio.Channel:
    """Open a channel for the running event loop; see `open_channel`."""
    target, options = target_of(connection.address), _options(connection)
    if credentials := connection.credentials:
        return grpc.aio.secure_channel(target, credentials, options)
    return grpc.aio.insecure_channel(target, options)


def target_of(address: str) -> str:
    """Return the gRPC target of an address.

    Several addresses, separated by commas, are the replicas of one service. Each is an IP address or
    `localhost`, since a gRPC target cannot list several names. A single name, `dns:///NAME:PORT`, may
    resolve to several addresses. Raises InvalidRequest for an invalid list, and for a host without a port,
    for which gRPC would take port 443.
    """
    if "," not in address or address.startswith(("ipv4:", "ipv6:")):
        if _is_host(host := address.removesuffix(":") if address.count(":") == 1 else address):
            host = f"[{host}]" if ":" in host and "[" not in host else host
            raise InvalidRequest(f"address: {address!r} has no port; write HOST:PORT, such as {host}:51001")
        return address
    places = [place.strip().replace("localhost", "127.0.0.1") for place in address.split(",")]
    hosts = [place.rpartition(":")[0].strip("[]") for place in places]
    try:
        (family,) = {ipaddress.ip_address(host).version for host in hosts}
    except ValueError:  # an invalid address, or IPv4 beside IPv6
        raise InvalidRequest(
            f"address: {address!r}: write several addresses as IP:PORT,IP:PORT, either all IPv4 or all IPv6; "
            "a host name must be the only address"
        ) from None
    return f"ipv{family}:" + ",".join(places)


def _is_host(address: str) -> bool:
    """Return whether this is a host name or an IP address alone, not HOST:PORT or a target with a scheme."""
    try:
        ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return re.fullmatch(r"[^:/\[\]]+", address) is not None
    return True


def _options(connection: Connection) -> list[tuple[str, str | int]]:
    several = "," in connection.address
    config = _SERVICE_CONFIG_OF_REPLICAS if several else _SERVICE_CONFIG
    options = [("grpc.service_config", json.dumps(config)), *_OPTIONS]
    if connection.server_name:
        options.append(("grpc.ssl_target_name_override", connection.server_name))
    elif several and connection.is_encrypted:
        raise InvalidRequest(
            f"address: {connection.address!r}: several addresses with TLS need server_name, a name in the "
            "certificates of all of them"
        )
    return options
