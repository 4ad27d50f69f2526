"""Makes backups of a store, even while a service uses it, and puts a backup in place of a lost store."""

import os
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from job_tracker.domain.errors import StoreRefused
from job_tracker.store.sqlite import files, mark, schema

_REPLACED = ".replaced-"


def back_up(path: Path, target: Path) -> None:
    """Copy a consistent snapshot of the store at `path` into one file, durably.

    A service that uses the store at the same time is not delayed. Raises StoreRefused if `target` exists, if
    there is no store at `path`, or if the copy fails.
    """
    if target.exists():
        raise StoreRefused(f"{target}: exists, and backups are not overwritten; choose another name")
    if not path.exists():
        raise StoreRefused(f"{path}: does not exist, so there is nothing to back up; check storage.data_dir")
    part = target.with_name(f"{target.name}.part")
    try:
        _copy(path, part)
        part.rename(target)
        files.sync(target.parent)
    except (sqlite3.DatabaseError, OSError) as error:
        raise StoreRefused(f"{path}: cannot be backed up to {target} ({error})") from error


def stage(backup: Path, path: Path) -> Path:
    """Copy a backup to a file beside the store at `path`, and return the copy, which will replace the store.

    Raises StoreRefused if `backup` is not a file, is damaged, was written by another program or a newer
    version, cannot be copied, or never had a job.
    """
    staged = path.with_name(f"{path.name}.restoring")
    if not backup.is_file():
        raise StoreRefused(f"{backup}: is not a file; name a file that `training-service backup` has made")
    try:
        discard(staged)
        _copy(backup, staged)
    except (sqlite3.DatabaseError, OSError) as error:
        raise StoreRefused(f"{backup}: cannot be restored ({error}). Nothing was changed.") from error
    if not schema.has_had_jobs(staged):
        discard(staged)
        raise StoreRefused(f"{backup}: never had a job, so there is nothing to restore; name another backup")
    return staged


def last_given_beside(path: Path, store_id: str) -> int:
    """Return the highest job id that may have been given by the store at `path`, or by an earlier store that
    a restored backup has replaced.

    Only stores with this store id count. The result is 0 if there is no such store. The earlier stores matter
    if the store at `path` is missing or damaged, or has another id.
    """
    stores = (path, *path.parent.glob(f"{path.name}{_REPLACED}*/{path.name}"))
    given = [0]
    for store in stores:
        with suppress(StoreRefused, OSError):  # damaged stores are skipped
            found = mark.read(store)
            if found is not None and found.store_id == store_id:
                given.append(found.last_id)
    return max(given)


def discard(staged: Path) -> None:
    """Remove a staged copy with all its files."""
    for file in (*files.all_of(staged), files.lock_of(staged)):
        file.unlink(missing_ok=True)


def put_in_place(staged: Path, path: Path) -> Path | None:
    """Put a prepared, closed copy in place of the store at `path`, which must be locked.

    The old files are moved into a folder, since SQLite would apply an old write-ahead log to the copy. Return
    this folder; None if there were no old files. After an interruption, either the old or the new store is in
    place and complete, or the service refuses to start.
    """
    aside = None
    if there := [file for file in files.all_of(path) if file.exists()]:
        aside = path.with_name(f"{path.name}{_REPLACED}{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        aside.mkdir(mode=0o700)
        for file in there:
            file.rename(aside / file.name)
        files.sync(aside)
    staged.rename(path)
    files.sync(path.parent)
    discard(staged)
    return aside


def _copy(source: Path, target: Path) -> None:
    schema.refuse_what_is_not_ours(source)
    target.unlink(missing_ok=True)
    # The file has the secrets of the report keys: create it for this user only, before SQLite opens it.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    with closing(reading), closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
        writing.execute("PRAGMA journal_mode = DELETE")  # a single file, readable even in a read-only folder
    with target.open("rb") as file:
        os.fsync(file.fileno())
