"""Backend on a Kubernetes cluster: a pod an instance, and a Service when there are several."""
