"""The Kubernetes backend: a pod for each instance, and a Service if a group has several."""
