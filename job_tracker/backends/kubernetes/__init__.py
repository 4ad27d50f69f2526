"""The Kubernetes backend: a pod for each instance, and a Service for each group of several instances."""
