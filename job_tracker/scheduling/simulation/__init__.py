"""Replays a trace of jobs through a scheduling policy, without a service: for benchmarks and `trainctl simulate`."""
