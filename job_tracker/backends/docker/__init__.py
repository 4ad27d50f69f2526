"""Groups of containers on a Docker engine."""

from job_tracker.backends.docker.backend import DockerBackend, DockerOptions
from job_tracker.backends.docker.plan import PlanOptions

__all__ = ["DockerBackend", "DockerOptions", "PlanOptions"]
