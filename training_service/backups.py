"""`training-service backup` and `restore`: a copy of the job store, and a service that goes on from one."""

import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from job_tracker.backends.process.sweeping import supervised_elsewhere
from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import StoreRefused
from job_tracker.store.base import Store
from job_tracker.store.lease import Term
from job_tracker.store.sqlite import SqliteStore, backup, files
from job_tracker.tracking.restoring import Restored, catch_up
from training_service.main import open_backend
from training_service.settings import Settings
from training_service.store_opening import open_store, sqlite_path

_IN_REDIS = "store.url: jobs are in Redis, which makes its own copies (dump.rdb, AOF): see docs/upgrading.md"
_LEASE = timedelta(minutes=10)
_RETRY_SECONDS = 0.2


def back_up(settings: Settings, target: Path) -> None:
    """Copy the job store, which may be in use, to a new file. Raises StoreRefused."""
    if settings.store.url is not None:
        raise StoreRefused(_IN_REDIS)
    backup.back_up(sqlite_path(settings), target)


async def restore(settings: Settings, source: Path | None) -> str:
    """Have the next service go on from a backup; returns what was done, in lines for people.

    With SQLite `source` becomes the job store. The data of a Redis server are restored before, by its own
    means, and `source` is None. Raises TrackerError, the job store being as it was.
    """
    if settings.store.url is None:
        return await _restore_file(settings, source)
    if source is not None:
        raise StoreRefused(
            f"{source}: jobs are in Redis (store.url): restore the data of that server first, and then run "
            "this command without a file"
        )
    store = await open_store(settings)
    try:
        return _told(await _catch_up(settings, store))
    finally:
        await store.close()


async def _restore_file(settings: Settings, source: Path | None) -> str:
    if source is None:
        raise StoreRefused("name the backup that is to be restored, a file of training-service backup")
    path = sqlite_path(settings)
    lock = files.lock(path)
    try:
        staged = await asyncio.to_thread(backup.stage, source, path)
        try:
            store = await SqliteStore.open(staged)
            try:
                last_given = backup.last_given_beside(path, await store.store_id())
                restored = await _catch_up(settings, store, last_given)
            finally:
                await store.close()
            # Not before it is prepared: until here nothing has changed.
            aside = await asyncio.to_thread(backup.put_in_place, staged, path)
        except BaseException:
            backup.discard(staged)
            raise
    finally:
        os.close(lock)
    moved = f"\nThe store that was here is in {aside}." if aside else ""
    return f"{path} is restored from {source}.\n{_told(restored)}{moved}"


async def _catch_up(settings: Settings, store: Store, last_given: int = 0) -> Restored:
    async with AsyncExitStack() as stack:
        # A term of our own: no tracker of a replica works meanwhile, nor writes from before.
        term = await _lead(settings, store)
        stack.push_async_callback(store.resign, term)
        store_id = await store.store_id()
        if settings.backend == "process":
            await asyncio.to_thread(_refuse_if_elsewhere, store_id, settings.storage.data_dir)
        backend = (await open_backend(settings, store_id)).backend
        stack.push_async_callback(backend.close)
        return await catch_up(store, backend, term, utc_now(), last_given=last_given)


async def _lead(settings: Settings, store: Store) -> Term:
    """Win the lease, as soon as that of a service which was killed is over. Raises StoreRefused."""
    deadline = time.monotonic() + 2 * settings.store.lease_seconds
    while (term := await store.lead(f"restore on {socket.gethostname()}/{os.getpid()}", _LEASE)) is None:
        if time.monotonic() > deadline:
            raise StoreRefused(
                "a service uses this job store; stop it, and all its replicas, before a restore"
            )
        await asyncio.sleep(_RETRY_SECONDS)
    return term


def _refuse_if_elsewhere(store_id: str, data_dir: Path) -> None:
    groups = data_dir.absolute() / "groups"
    if found := supervised_elsewhere(store_id, groups):
        raise StoreRefused(
            f"{len(found)} processes of this store's jobs run on this machine with files below another data "
            f"folder, where this service would not see them and run their jobs a second time: {found[0]}. "
            "Restore into that data folder (storage.data_dir), or end these processes first"
        )


def _told(restored: Restored) -> str:
    return "\n".join(
        (
            f"{restored.unfinished} jobs had not ended at the time of the backup.",
            f"{restored.taken_up} of them have a group that is there, and is taken up.",
            f"{restored.repeated} get another attempt, since it is not known how theirs ended.",
            f"{restored.strays} jobs that are unknown, or had ended, have a group; the service ends it.",
            f"New jobs get ids from {restored.last_skipped_id + 1} on.",
        )
    )
