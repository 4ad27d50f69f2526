"""The gRPC servers and the addresses at which they listen."""

import asyncio
import logging
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from training_service._generated import (
    access_service_pb2,
    catalog_service_pb2,
    program_service_pb2,
    training_reporter_pb2,
    training_service_pb2,
)
from training_service._generated.access_service_pb2_grpc import add_AccessServiceServicer_to_server
from training_service._generated.catalog_service_pb2_grpc import add_CatalogServiceServicer_to_server
from training_service._generated.program_service_pb2_grpc import add_ProgramServiceServicer_to_server
from training_service._generated.training_reporter_pb2_grpc import add_TrainingReporterServicer_to_server
from training_service._generated.training_service_pb2_grpc import add_TrainingServiceServicer_to_server
from training_service.api.access import AccessServicer
from training_service.api.catalog import CatalogServicer
from training_service.api.connections import call_options, connection_options
from training_service.api.interceptors import LARGEST_MESSAGE, CallInterceptor, CallObserver
from training_service.api.limits import CallLimits
from training_service.api.programs import ProgramServicer
from training_service.api.reporter import ReporterServicer
from training_service.api.servicer import TrainingServicer
from training_service.auth.authenticator import Authenticator
from training_service.auth.live import Live
from training_service.auth.tls import ServerTls, server_credentials
from training_service.settings import Settings
from training_service.settings.addresses import loopback_hosts, split

log = logging.getLogger(__name__)

SERVICE_NAMES = tuple(
    service.full_name
    for file in (
        training_service_pb2,
        training_reporter_pb2,
        access_service_pb2,
        program_service_pb2,
        catalog_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
)
_HEALTH_DESCRIPTORS = 128
"""The number of file descriptors for health checks. Half of them are for connections; probes need few."""


class CannotServe(Exception):
    """The service cannot start. The message is one line."""


@dataclass(frozen=True, slots=True)
class Listener:
    """An address of a server, and how connections to it are protected."""

    setting: str
    address: str
    tls: Live[ServerTls] | None = None
    """The certificate and key of the server. None: connections are not encrypted."""
    client_certificates: bool = False
    """Whether clients must have certificates."""

    @property
    def hosts(self) -> Sequence[str]:
        """The hosts at which the server listens."""
        host, _ = split(self.address)
        return loopback_hosts() if host.lower() == "localhost" else (host,)

    def bind(self, server: grpc.aio.Server) -> int:
        """Let the server listen at this address, and return the port. Raises CannotServe if it cannot listen.

        For `localhost`, the server listens at all loopback addresses of this name, or at none. If it listened
        at only one of them, another program could listen at the other one, and receive the tokens of clients
        that connect there.
        """
        _, port = split(self.address)
        try:
            for host in self.hosts:
                port = str(self._bind(server, f"{host}:{port}"))
            return int(port)
        except RuntimeError as error:
            remedy = "Choose another address" + (
                " with --address" if self.setting == "server.address" else ""
            )
            raise CannotServe(
                f"{self.setting}: cannot listen at {self.address}: another program may use the port, or the "
                f"host is not an address of this machine. {remedy}"
            ) from error

    def _bind(self, server: grpc.aio.Server, address: str) -> int:
        if self.tls is None:
            return server.add_insecure_port(address)
        credentials = server_credentials(self.tls, client_certificates=self.client_certificates)
        return server.add_secure_port(address, credentials)


@dataclass(frozen=True, slots=True)
class Servicers:
    """The services of a server, besides health checks."""

    api: TrainingServicer | None = None
    access: AccessServicer | None = None
    reporter: ReporterServicer | None = None
    programs: ProgramServicer | None = None
    catalog: CatalogServicer | None = None


class Servers:
    """The servers of the API, of reports and of health checks. They answer after `start`."""

    def __init__(
        self,
        settings: Settings,
        tls: Live[ServerTls] | None,
        servicers: Servicers,
        authenticator: Authenticator,
        observe: CallObserver,
        limits: CallLimits,
        observe_refusal: Callable[[str], None],
    ) -> None:
        """Listen at all addresses. Raises CannotServe if one cannot be used."""
        self._serving = health.aio.HealthServicer()
        self._all: list[grpc.aio.Server] = []
        self._others: list[str] = []
        self._grace = settings.server.shutdown_seconds
        server, options = settings.server, settings.server.tls
        required = options.client_certificates == "required"
        api = [Listener("server.address", server.address, tls, required)]
        if options.certificate_address:
            api.append(Listener("server.tls.certificate_address", options.certificate_address, tls, True))
        listen = settings.reports.listen
        reports = [Listener("reports.listen", listen, tls)] if listen else []
        # The limit of descriptors is divided among all addresses of the API and of reports.
        addresses = sum(len(listener.hosts) for listener in (*api, *reports))
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // addresses
        self._interceptor = interceptor = CallInterceptor(observe, authenticator, limits, observe_refusal)
        self.port, *_ = self._bind(make_server(servicers, interceptor, descriptors), api)
        self.report_address = (server.address, self.port)
        """The listening address and the port of reports."""
        if listen:
            made = make_server(
                replace(servicers, api=None, access=None, programs=None, catalog=None),
                interceptor,
                descriptors,
            )
            [port] = self._bind(made, reports)
            self.report_address = (listen, port)
        if server.health_address:
            made = make_server(Servicers(), interceptor, _HEALTH_DESCRIPTORS)
            self._bind(made, [Listener("server.health_address", server.health_address)])

    def _bind(self, server: grpc.aio.Server, listeners: list[Listener]) -> list[int]:
        health_pb2_grpc.add_HealthServicer_to_server(self._serving, self._interceptor.on(server))
        self._all.append(server)
        ports = [listener.bind(server) for listener in listeners]
        self._others += [
            f"{listener.setting}: {split(listener.address)[0]}:{port}"
            for listener, port in zip(listeners, ports, strict=True)
            if listener.setting != "server.address"
        ]
        return ports

    async def start(self) -> None:
        """Answer calls, and let health checks succeed. Logs all addresses except `server.address`."""
        for server in self._all:
            await server.start()
        for address in self._others:
            log.info("also listening at %s", address)
        for name in ("", *SERVICE_NAMES):
            await self._serving.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Let health checks answer NOT_SERVING, because the service is about to stop."""
        await self._serving.enter_graceful_shutdown()

    async def stop(self) -> None:
        """Refuse new calls, and give running calls the configured time to finish."""
        await asyncio.gather(*(server.stop(self._grace) for server in self._all))


def make_server(
    servicers: Servicers,
    interceptor: CallInterceptor,
    descriptors: int,
) -> grpc.aio.Server:
    """Return a server of these services.

    `descriptors` is the number of file descriptors for each address of the server. At most half of them are
    used for connections.
    """
    server = grpc.aio.server(
        options=[
            *connection_options(descriptors),
            *call_options(LARGEST_MESSAGE),
            ("grpc.so_reuseport", 0),  # a second service on this port must fail to start
        ],
    )
    intercepted = interceptor.on(server)
    if servicers.api is not None:
        add_TrainingServiceServicer_to_server(servicers.api, intercepted)
        names = (*SERVICE_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), intercepted)
    if servicers.reporter is not None:
        add_TrainingReporterServicer_to_server(servicers.reporter, intercepted)
    if servicers.access is not None:
        add_AccessServiceServicer_to_server(servicers.access, intercepted)
    if servicers.programs is not None:
        add_ProgramServiceServicer_to_server(servicers.programs, intercepted)
    if servicers.catalog is not None:
        add_CatalogServiceServicer_to_server(servicers.catalog, intercepted)
    return server
