"""A server that requires client certificates, in front of a service."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc

from tests.support.api_service import Service
from tests.support.certificates import LOCAL, Authority, Issued, credentials
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.api.interceptors import CallInterceptor
from training_service.auth.authenticator import NotingRefusals, Proofs
from training_service.auth.certificates import identity_of
from training_service.auth.live import Live
from training_service.auth.pem_files import PemFile
from training_service.auth.tls import read_tls
from training_service.serving import Listener, Servicers, make_server


class Entrance:
    """A server that requires client certificates, in front of a service."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.authority = Authority(folder)
        files = self.authority.issue(*LOCAL).write(folder, "server")
        paths = [files.certificate, files.key, self.authority.file]
        pem = [PemFile("server.tls", path) for path in paths]
        tls = Live("server.tls", paths, lambda: read_tls(*pem))
        interceptor = CallInterceptor(
            service.metrics.observe_call,
            NotingRefusals(Proofs(service.access.callers, identity_of, is_open=False), service.trail.note),
        )
        self.server = make_server(Servicers(service.servicer, service.access_servicer), interceptor, 1024)
        self.address = f"127.0.0.1:{Listener('server.address', '127.0.0.1:0', tls, True).bind(self.server)}"
        self._stack = AsyncExitStack()

    def channel(self, client: Issued) -> grpc.aio.Channel:
        """Return a channel of a client with this certificate."""
        return grpc.aio.secure_channel(
            self.address, credentials(self.authority, client), [("grpc.use_local_subchannel_pool", 1)]
        )

    async def connect(self, client: Issued) -> Any:
        """Return a client with this certificate."""
        return TrainingServiceStub(await self._stack.enter_async_context(self.channel(client)))

    async def close(self) -> None:
        await self._stack.aclose()
        await self.server.stop(None)
