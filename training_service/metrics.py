"""What Prometheus may scrape."""

import functools
import logging

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from training_service.settings import MetricsSettings

log = logging.getLogger(__name__)


class Metrics:
    """The service's measurements: calls by method and code, and how long they took."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "training_service_calls", "Calls answered", ["method", "code"], registry=self.registry
        )
        self._seconds = Histogram(
            "training_service_call_seconds", "Time to answer a call", ["method"], registry=self.registry
        )
        self._of = functools.cache(self._find)  # there are few, and finding them takes longer than counting

    def _find(self, method: str, code: grpc.StatusCode) -> tuple[Counter, Histogram]:
        return self._calls.labels(method, code.name), self._seconds.labels(method)

    def observe_call(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Count one call; see api.interceptors.CallObserver."""
        calls, duration = self._of(method, code)
        calls.inc()
        duration.observe(seconds)


class MetricsServer:
    """Serves the metrics over HTTP, if a port is set."""

    def __init__(self, metrics: Metrics, settings: MetricsSettings) -> None:
        """Raises OSError if the port cannot be had."""
        self._server = None
        if settings.port is not None:
            self._server, self._thread = start_http_server(settings.port, settings.address, metrics.registry)
            log.info("metrics at http://%s:%d/metrics", *self._server.server_address[:2])

    def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
