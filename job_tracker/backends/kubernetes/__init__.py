"""Backend on a Kubernetes cluster: a pod an instance, and a Service when there are several."""

from job_tracker.backends.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
