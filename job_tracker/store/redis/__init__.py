"""The store for several replicas: a Redis server, or a compatible one."""

from job_tracker.store.redis.connection import Address
from job_tracker.store.redis.store import RedisStore

__all__ = ["Address", "RedisStore"]
