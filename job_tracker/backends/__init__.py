"""Backends: where groups of instances run."""
