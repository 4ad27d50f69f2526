"""The Docker backend: groups of containers on a Docker engine."""

from job_tracker.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
