"""How long a test waits for what should happen."""

PATIENCE = 240.0
"""Seconds after which a program, a service or a job that should end counts as stuck.

Beside another run of all tests, up to 100 processes want the two cores, and 1 s of CPU takes up to 50 s.
"""
