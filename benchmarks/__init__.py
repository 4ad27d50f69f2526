"""Benchmarks of the service's speed and memory.

Most of them compare the service with a baseline in the same run. See README.md.
"""
