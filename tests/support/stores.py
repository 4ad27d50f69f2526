"""What the tests of stores call things."""

from collections.abc import Awaitable, Callable

from job_tracker.store.base import Store

Reopen = Callable[[], Awaitable[Store]]
"""Closes the store that it opened last, if any, and opens it (again), as a restart does."""
