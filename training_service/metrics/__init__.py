"""What Prometheus may scrape: measurements of the service, and the HTTP server that shows them."""

from training_service.metrics.metrics import Metrics
from training_service.metrics.server import MetricsServer

__all__ = ["Metrics", "MetricsServer"]
