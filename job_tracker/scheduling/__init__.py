"""Scheduling policies: pure functions from a snapshot of the queue to decisions."""
