"""Algorithms and datasets that are declared in files or by the API, and change without a restart."""
