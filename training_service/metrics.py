"""What Prometheus may scrape."""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from training_service.settings import MetricsSettings

log = logging.getLogger(__name__)


class Metrics:
    """The service's measurements: calls and how long they took; requests to its engine; whether it leads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "training_service_calls", "Calls answered", ["method", "code"], registry=self.registry
        )
        self._seconds = Histogram(
            "training_service_call_seconds", "Time to answer a call", ["method"], registry=self.registry
        )
        self._leader = Gauge(
            "training_service_leader",
            "1 in the one replica that tracks, 0 in the others",
            registry=self.registry,
        )
        self._of = functools.cache(self._find)  # there are few, and finding them takes longer than counting

    def _find(self, method: str, code: grpc.StatusCode) -> tuple[Counter, Histogram]:
        return self._calls.labels(method, code.name), self._seconds.labels(method)

    def observe_call(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Count one call; see api.interceptors.CallObserver."""
        calls, duration = self._of(method, code)
        calls.inc()
        duration.observe(seconds)

    def observe_leading(self, leads: bool) -> None:
        """Show whether this replica leads."""
        self._leader.set(leads)

    def observe_requests(self, requests: Callable[[], Mapping[str, int]]) -> None:
        """Show what `requests` then says: how many of each kind the backend has sent to its engine."""
        self.registry.register(_Requests(requests))


class _Requests(Collector):
    def __init__(self, requests: Callable[[], Mapping[str, int]]) -> None:
        self._requests = requests

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "training_service_engine_requests", "Requests sent to the engine", labels=["request"]
        )
        # A copy: this is another thread than the one that counts.
        for kind, number in dict(self._requests()).items():
            family.add_metric([kind], number)
        yield family


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
