"""The Docker backend: groups of containers on a Docker engine."""
