"""Groups of containers on a Docker engine."""

from job_tracker.backends.docker.backend import DockerBackend, DockerOptions
from job_tracker.backends.docker.client import Access
from job_tracker.backends.docker.plan import PlanOptions

__all__ = ["Access", "DockerBackend", "DockerOptions", "PlanOptions"]
