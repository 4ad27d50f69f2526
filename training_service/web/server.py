"""The HTTP server of the dashboard, in the event loop of the service."""

import asyncio
import logging
import socket
import ssl
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from training_service.auth.live import Live
from training_service.auth.tls import ServerTls

log = logging.getLogger(__name__)

_MOST_CONNECTIONS: Final = 1000
_KEEP_ALIVE_SECONDS: Final = 30
_BEGIN_SECONDS: Final = 20.0
"""A connection that has not sent the headers of a request after this time is closed."""
_LARGEST_HEADERS: Final = 32 * 1024


class WebServer:
    """Serves an application at a socket. It answers after `start`."""

    def __init__(
        self, app: ASGIApp, listening: socket.socket, tls: Live[ServerTls] | None, grace: float
    ) -> None:
        """`grace` is the number of seconds that requests get to finish after `stop`; at least 1 is used."""
        self._socket = listening
        config = uvicorn.Config(
            app,
            loop="none",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(grace)),
            h11_max_incomplete_event_size=_LARGEST_HEADERS,
        )
        config.load()
        if tls is not None:
            config.ssl = _context(tls)
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._is_started = False

    @property
    def port(self) -> int:
        """The port at which the server listens."""
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Answer requests. uvicorn's own loop is not used: it would wake ten times a second."""
        await self._server.startup(sockets=[self._socket])
        self._is_started = True

    async def stop(self) -> None:
        """Take no new requests, and give running requests time to finish. The call may be repeated."""
        if self._is_started:
            self._is_started = False
            await self._server.shutdown(sockets=[self._socket])
        self._socket.close()


class _Protocol(H11Protocol):
    """Closes connections that do not send a request in time."""

    _beginning: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Close the connection after `_BEGIN_SECONDS` if it has not sent a request."""
        super().connection_made(transport)
        self._beginning = asyncio.get_running_loop().call_later(_BEGIN_SECONDS, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer of the first request."""
        if self._beginning is not None:
            self._beginning.cancel()
        super().connection_lost(exc)

    def _close_if_idle(self) -> None:
        has_begun: Any = self.cycle  # None before the first request, despite its declared type
        if has_begun is None and not self.transport.is_closing():
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to this address. Raises OSError if it cannot be bound."""
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # The socket has the number of the protocol TCP. Without this number, asyncio does not switch off Nagle's
    # algorithm, and each answer waits for 40 ms.
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.setblocking(False)
        made.set_inheritable(False)
    except OSError:
        made.close()
        raise
    return made


def _context(tls: Live[ServerTls]) -> ssl.SSLContext:
    """Return a context that uses the newest certificate for each connection."""
    context = tls.get().context

    def renew(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = tls.get().context

    context.sni_callback = renew
    return context
