"""Metrics for Prometheus, and the HTTP server for scrapes."""

from training_service.metrics.metrics import Metrics
from training_service.metrics.server import MetricsServer

__all__ = ["Metrics", "MetricsServer"]
