"""The health check of `training-service health`."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from training_service.auth.live import Unusable
from training_service.certificate_opening import read_certificate
from training_service.settings import Settings

_ANSWER_SECONDS = 3
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104
"""Hosts that mean "listen at all addresses"; for each, the host to which this machine can connect."""


class NotHealthy(Exception):
    """The service cannot be asked, or does not answer. The message is one line."""


def ask(settings: Settings | None, address: str | None) -> str:
    """Ask the service at the address for its state, and return the state: SERVING if the service serves.

    Raises NotHealthy if the service cannot be asked, or does not answer.

    If `address` is None, the service is asked at `server.health_address` or, if this is not set, at
    `server.address`. TLS is used if the settings use it for this address. Without settings, `address` is
    required, and TLS is not used.
    """
    target, channel = _channel(settings, address)
    with channel:
        try:
            request = health_pb2.HealthCheckRequest()
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise NotHealthy(f"{target} does not answer: {error.details()}") from error
    state: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return state


def _channel(settings: Settings | None, address: str | None) -> tuple[str, grpc.Channel]:
    if settings is None:
        assert address is not None
        return address, grpc.insecure_channel(address)
    server = settings.server
    given = address or server.health_address or server.address
    host, _, port = given.rpartition(":")
    target = f"{_EVERYWHERE.get(host, host)}:{port}"
    if not server.tls.enabled or given == server.health_address:
        return target, grpc.insecure_channel(target)
    if server.tls.client_certificates == "required":
        raise NotHealthy(
            f"{target} requires client certificates; set server.health_address to check the health"
        )
    try:
        tls = read_certificate(settings)
    except Unusable as error:
        raise NotHealthy(str(error)) from error
    # Only this certificate is trusted. The client expects one of the certificate's names, because the host of
    # `given` may not be among them.
    name = min(tls.names, default="").replace("*.", "any.")
    credentials = grpc.ssl_channel_credentials(tls.chain)
    return target, grpc.secure_channel(target, credentials, [("grpc.ssl_target_name_override", name)])
