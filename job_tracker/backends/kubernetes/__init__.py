"""Backend on a Kubernetes cluster: a pod an instance, and a Service when there are several."""

from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.backend import KubernetesBackend, KubernetesOptions
from job_tracker.backends.kubernetes.plan import PlanOptions

__all__ = ["Access", "KubernetesBackend", "KubernetesOptions", "PlanOptions"]
