"""Metrics of the service's certificates."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class CertificateState(Collector):
    """The expiry times of certificates, and the number of settings whose changed files cannot be used."""

    def __init__(self, ends: Callable[[], Mapping[str, datetime]], problems: Callable[[], int]) -> None:
        """`ends` returns the expiry time of each setting's certificate. `problems` returns the number of
        settings whose changed files cannot be used.
        """
        self._ends = ends
        self._problems = problems

    def collect(self) -> Iterator[Metric]:
        expiry = GaugeMetricFamily(
            "training_service_certificate_expiry_timestamp_seconds",
            "Time at which the certificate that is in use expires; of several, the first to expire",
            labels=["setting"],
        )
        for setting, end in self._ends().items():
            expiry.add_metric([setting], end.timestamp())
        yield expiry
        yield GaugeMetricFamily(
            "training_service_certificate_problems",
            "Settings whose files have changed and cannot be used; their previous content stays in use",
            value=self._problems(),
        )
