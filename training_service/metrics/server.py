"""The HTTP server of the metrics: threads of its own, so it answers also while the event loop is busy."""

import logging

from prometheus_client import CollectorRegistry, start_http_server

from training_service.settings import MetricsSettings

log = logging.getLogger(__name__)


class MetricsServer:
    """Serves the metrics over HTTP, if a port is set."""

    def __init__(self, registry: CollectorRegistry, settings: MetricsSettings) -> None:
        """Raises OSError if the port cannot be had."""
        self._server = None
        if settings.port is not None:
            self._server, self._thread = start_http_server(settings.port, settings.address, registry)
            log.info("metrics at http://%s:%d/metrics", *self._server.server_address[:2])

    def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
