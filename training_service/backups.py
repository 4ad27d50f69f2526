"""`training-service backup` and `restore`: copy the job store, and prepare a service to use a copy."""

import asyncio
import os
import pwd
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
from training_service.backend_opening import open_backend
from training_service.settings import Settings
from training_service.store_opening import open_store, sqlite_path

_IN_REDIS = "store.url: the jobs are in Redis. Use its own backups (dump.rdb, AOF); see docs/upgrading.md"
_LEASE = timedelta(minutes=10)
_RETRY_SECONDS = 0.2


def back_up(settings: Settings, target: Path) -> None:
    """Copy the job store, which may be in use, to a new file.

    Raises StoreRefused if the jobs are in Redis, if there is no job store, if `target` exists, or if the copy
    fails.
    """
    if settings.store.url is not None:
        raise StoreRefused(_IN_REDIS)
    backup.back_up(sqlite_path(settings), target)


async def restore(settings: Settings, source: Path | None) -> str:
    """Restore a backup, which the next start of the service uses. Return a summary for people.

    With SQLite, a copy of `source` becomes the job store. With Redis, `source` is None, and the operator
    first restores the data of the Redis server. If the restoration fails, raises TrackerError, and a SQLite
    store stays unchanged.
    """
    if settings.store.url is None:
        return await _restore_file(settings, source)
    if source is not None:
        raise StoreRefused(
            f"{source}: the jobs are in Redis (store.url). Restore the data of that server first, then run "
            "this command without a file"
        )
    store = await open_store(settings)
    try:
        return _summary(await _catch_up(settings, store))
    finally:
        await store.close()


async def _restore_file(settings: Settings, source: Path | None) -> str:
    if source is None:
        raise StoreRefused("FILE is missing; name a backup that training-service backup has made")
    path = sqlite_path(settings)
    _refuse_as_root(path.parent)
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
            # The job store is replaced only after the copy has been prepared.
            aside = await asyncio.to_thread(backup.put_in_place, staged, path)
        except BaseException:
            backup.discard(staged)
            raise
    finally:
        os.close(lock)
    moved = f"\nThe previous store is in {aside}." if aside else ""
    return f"{path} is restored from {source}.\n{_summary(restored)}{moved}"


def _refuse_as_root(folder: Path) -> None:
    """Raise StoreRefused if root would restore into another user's folder: the service would not be able to
    open the files.
    """
    if os.geteuid() != 0 or not folder.exists() or (owner := folder.stat().st_uid) == 0:
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    raise StoreRefused(
        f"{folder}: belongs to user {name}, and the service could not open files that root restores into it. "
        f"Run this command as that user, such as with `runuser -u {name} -- training-service restore …`"
    )


async def _catch_up(settings: Settings, store: Store, last_given: int = 0) -> Restored:
    async with AsyncExitStack() as stack:
        # While this process holds the lease, no replica runs its tracker.
        term = await _lead(settings, store)
        stack.push_async_callback(store.resign, term)
        store_id = await store.store_id()
        if settings.backend == "process":
            await asyncio.to_thread(_refuse_if_elsewhere, store_id, settings.storage.data_dir)
        backend = (await open_backend(settings, store_id)).backend
        stack.push_async_callback(backend.close)
        return await catch_up(store, backend, term, utc_now(), last_given=last_given)


async def _lead(settings: Settings, store: Store) -> Term:
    """Take the lease, and return its term. If a killed service had the lease, wait until the lease expires.

    Raises StoreRefused if a running service keeps the lease.
    """
    deadline = time.monotonic() + 2 * settings.store.lease_seconds
    while (term := await store.lead(f"restore on {socket.gethostname()}/{os.getpid()}", _LEASE)) is None:
        if time.monotonic() > deadline:
            raise StoreRefused("a service uses this job store; stop all its replicas before a restore")
        await asyncio.sleep(_RETRY_SECONDS)
    return term


def _refuse_if_elsewhere(store_id: str, data_dir: Path) -> None:
    groups = data_dir.absolute() / "groups"
    if found := supervised_elsewhere(store_id, groups):
        raise StoreRefused(
            f"{len(found)} processes of this store's jobs run on this machine with files in another data "
            f"folder, such as {found[0]}. This service would not find them and would run their jobs again. "
            "Restore into that data folder (storage.data_dir), or end these processes first"
        )


def _summary(restored: Restored) -> str:
    return "\n".join(
        (
            f"{restored.unfinished} jobs had not ended at the time of the backup.",
            f"{restored.taken_up} of them have a group, which is adopted.",
            f"{restored.repeated} get another attempt, since the outcome of the last one is unknown.",
            f"{restored.strays} unknown or ended jobs have groups, which the service stops.",
            f"The next job gets the id {restored.last_skipped_id + 1} or a higher one.",
        )
    )
