"""The HTTP server of the metrics. It has its own threads, so it answers while the event loop is busy."""

import logging
import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from training_service.auth.live import Live
from training_service.auth.tls import ServerTls
from training_service.settings import MetricsSettings

log = logging.getLogger(__name__)

_MOST_CONNECTIONS = 16
_SILENCE_SECONDS = 5


class MetricsServer:
    """Serves the metrics over HTTP or HTTPS, if a port is set."""

    def __init__(
        self, registry: CollectorRegistry, settings: MetricsSettings, tls: Live[ServerTls] | None = None
    ) -> None:
        """Start to serve. Raises OSError if the server cannot listen on the port."""
        self._server = None
        if settings.port is not None:
            app = make_wsgi_app(registry)
            kind = _ServerIPv6 if ":" in settings.address else _Server
            self._server = make_server(settings.address, settings.port, app, kind, _Handler)
            self._server.tls = tls
            self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
            self._thread.start()
            scheme = "https" if tls else "http"
            log.info("metrics at %s://%s:%d/metrics", scheme, *self._server.server_address[:2])

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECONDS  # a silent connection is closed after this time

    def log_message(self, *_: Any) -> None:
        """Do nothing, so that requests are not logged."""


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a limited number of connections and threads.

    The limit leaves enough file descriptors for the rest of the service.
    """

    daemon_threads = True
    request_queue_size = 128
    tls: Live[ServerTls] | None = None

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*arguments)

    def handle_error(self, *_: Any) -> None:
        log.debug("a connection to the metrics failed", exc_info=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # for example, if no thread can be started
            self._places.release()
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_SILENCE_SECONDS)  # also for the handshake
        with self.tls.get().context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


class _ServerIPv6(_Server):
    address_family = socket.AF_INET6
