"""Benchmarks of the service's speed and memory.

Each compares the service with a peer in the same run. See README.md.
"""
