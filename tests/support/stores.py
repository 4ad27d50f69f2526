"""What the tests of stores call things."""

from collections.abc import Awaitable, Callable

from job_tracker.store.base import JobStore

Reopen = Callable[[], Awaitable[JobStore]]
"""Closes the store that it opened last, if any, and opens it (again), as a restart does."""
