"""The Kubernetes backend: a pod for each instance, and a Service if a group has several."""

from job_tracker.backends.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
