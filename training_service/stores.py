"""Where jobs are recorded, as configured."""

import hashlib

from job_tracker.store.base import JobStore
from training_service.settings import Settings


async def open_store(settings: Settings) -> JobStore:
    """The store that `settings.store` names, opened. Raises StoreRefused."""
    if settings.store.url is None:
        from job_tracker.store.sqlite import SqliteStore

        return await SqliteStore.open(settings.storage.data_dir / "jobs.db")
    # Its client takes a while to import, and only this store needs it.
    from job_tracker.store.redis import Address, RedisStore

    address = Address(settings.store.url.get_secret_value(), settings.store.prefix)
    # One memory for each store that was ever used from this folder: str(address) has no password.
    name = hashlib.sha256(str(address).encode()).hexdigest()[:16]
    return await RedisStore.open(
        address,
        answer_seconds=settings.store.answer_seconds,
        memory=settings.storage.data_dir / f"redis-{name}.id",
    )
