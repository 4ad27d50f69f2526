"""The store of several replicas: one Redis server, or anything that speaks as Redis does."""

from job_tracker.store.redis.connection import Address
from job_tracker.store.redis.store import RedisStore

__all__ = ["Address", "RedisStore"]
