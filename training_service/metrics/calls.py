"""Metrics of calls: those that the service answers, and those that it makes."""

from collections.abc import Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

# The fastest call is a read of the SQLite store, and the slowest one is the stop of a group.
_OUTSIDE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CallMetrics:
    """Counts calls by result, and measures their durations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answered = _Timed(
            "training_service_call",
            "Calls answered",
            registry,
            ("method",),
            "code",
            Histogram.DEFAULT_BUCKETS,
        ).observe
        self._refused = Counter(
            "training_service_calls_refused", "Calls refused by a limit", ["limit"], registry=registry
        )
        self.went_outside = _Timed(
            "training_service_outside_call",
            "Calls to the store and to the backend",
            registry,
            ("kind", "operation"),
            "result",
            _OUTSIDE_SECONDS,
        ).observe
        self.requested = _Timed(
            "training_service_kubernetes_request",
            "Requests to the API server, including retries; the time of a stream is the time until it begins",
            registry,
            ("request",),
            "code",
            _OUTSIDE_SECONDS,
        ).observe

    def refused(self, limit: str) -> None:
        """Count a call that the limit with this name refused.

        There are only a few limits, so the label has only a few values.
        """
        self._refused.labels(limit).inc()


class _Timed:
    """A counter NAMEs_total by labels and result, and a histogram NAME_seconds by labels."""

    def __init__(
        self,
        name: str,
        description: str,
        registry: CollectorRegistry,
        labels: Sequence[str],
        result: str,
        buckets: Sequence[float],
    ) -> None:
        self._calls = Counter(f"{name}s", description, [*labels, result], registry=registry)
        self._seconds = Histogram(
            f"{name}_seconds", f"{description}: time taken", labels, buckets=buckets, registry=registry
        )
        self._of = cache(self._find)  # few label values; finding the metrics takes longer than counting

    def observe(self, seconds: float, *labels: str) -> None:
        """Count a call and its duration. The last of the label values is the result."""
        calls, duration = self._of(*labels)
        calls.inc()
        duration.observe(seconds)

    def _find(self, *labels: str) -> tuple[Counter, Histogram]:
        return self._calls.labels(*labels), self._seconds.labels(*labels[:-1])
