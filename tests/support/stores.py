"""Types for the tests of stores."""

from collections.abc import Awaitable, Callable

from job_tracker.store.base import Store
from job_tracker.store.redis import RedisStore

Reopen = Callable[[], Awaitable[Store]]
"""Closes the store that it opened last, if any, and opens it again, as a restart does."""

Open = Callable[..., Awaitable[RedisStore]]
"""Opens a store, as another service does."""
