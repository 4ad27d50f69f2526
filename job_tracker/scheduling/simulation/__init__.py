"""Replays traces of jobs through scheduling policies: for benchmarks and `trainctl simulate`."""
