"""Measures the network between the ranks of a job: see README.md."""
