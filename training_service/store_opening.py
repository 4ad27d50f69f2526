"""Opens the configured job store."""

import asyncio
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from job_tracker.store.base import Store
from training_service.settings import Settings
from training_service.settings.service import StorageSettings

# Folders that only jobs create. The folder of datasets is not among them: it exists before the first job.
_OF_JOBS = ("groups/live", "groups/kept", "groups/ended", "logs")
_OF_JOBS_IN_STORAGE = ("models", "checkpoints", "logs")


async def open_store(settings: Settings) -> Store:
    """Open the configured store. Raises StoreRefused if it cannot be used."""
    if settings.store.url is None:
        from job_tracker.store.sqlite import SqliteStore

        used = () if settings.storage.start_anew else await asyncio.to_thread(_used_folders, settings.storage)
        return await SqliteStore.open(sqlite_path(settings), used)
    # Imported here, since the client library is slow to import.
    from job_tracker.store.redis import Address, RedisStore

    address = Address(settings.store.url.get_secret_value(), settings.store.prefix)
    # data_dir has a file for each Redis store that it was used with. The file has the store's id. The file's
    # name is a hash of the address without the password: str(address) leaves the password out.
    name = hashlib.sha256(str(address).encode()).hexdigest()[:16]
    return await RedisStore.open(
        address,
        answer_seconds=settings.store.answer_seconds,
        memory=settings.storage.data_dir / f"redis-{name}.id",
    )


def store_place(settings: Settings) -> str:
    """Return the address of the store, for people: without secrets."""
    if settings.store.url is None:
        return f"SQLite, {sqlite_path(settings)}"
    from job_tracker.store.redis import Address

    return f"Redis, {Address(settings.store.url.get_secret_value(), settings.store.prefix)}"


def sqlite_path(settings: Settings) -> Path:
    """Return the file of the SQLite store."""
    return settings.storage.data_dir / "jobs.db"


def _used_folders(storage: StorageSettings) -> list[Path]:
    """Return the folders below data_dir that have files of jobs."""
    folders = [storage.data_dir / name for name in _OF_JOBS]
    root = Path(storage.root.removeprefix("file://"))
    if root.is_relative_to(storage.data_dir.absolute()):
        folders += [root / name for name in _OF_JOBS_IN_STORAGE]
    return [folder for folder in folders if _has_content(folder)]


def _has_content(folder: Path) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        return any(True for _ in entries)
    return False
