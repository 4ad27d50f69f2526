"""Copies of a store: made while a service writes it, and put in the place of one that is lost."""

import os
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from job_tracker.domain.errors import StoreRefused
from job_tracker.store.sqlite import files, mark, schema

_REPLACED = ".replaced-"


def back_up(path: Path, target: Path) -> None:
    """Copy the store at `path`, as it is at one moment, into one file; it is on the disk when this returns.

    A service may use the store meanwhile, and is not held up. Raises StoreRefused: nothing is overwritten.
    """
    if target.exists():
        raise StoreRefused(f"{target}: is there already, and no backup is overwritten; choose another name")
    if not path.exists():
        raise StoreRefused(f"{path}: does not exist, so there is nothing to back up; see storage.data_dir")
    part = target.with_name(f"{target.name}.part")
    try:
        _copy(path, part)
        part.rename(target)
        files.sync(target.parent)
    except (sqlite3.DatabaseError, OSError) as error:
        raise StoreRefused(f"{path}: cannot be backed up to {target} ({error})") from error


def stage(backup: Path, path: Path) -> Path:
    """Copy a backup beside the store that it is to replace, to be prepared there. Raises StoreRefused."""
    staged = path.with_name(f"{path.name}.restoring")
    if not backup.is_file():
        raise StoreRefused(f"{backup}: is no file; name one that training-service backup has made")
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
    """The highest id that may have been given by the store at `path`, and those that were replaced there.

    0 if there is none of this identity. A backup that is restored once more does not know of the ids that
    were given since it was restored the first time.
    """
    stores = (path, *path.parent.glob(f"{path.name}{_REPLACED}*/{path.name}"))
    given = [0]
    for store in stores:
        with suppress(StoreRefused, OSError):  # a damaged one is replaced for that
            said = mark.read(store)
            if said is not None and said.store_id == store_id:
                given.append(said.last_id)
    return max(given)


def discard(staged: Path) -> None:
    """Remove a copy that was staged, and all that belongs to it."""
    for file in (*files.all_of(staged), files.lock_of(staged)):
        file.unlink(missing_ok=True)


def put_in_place(staged: Path, path: Path) -> Path | None:
    """Put a prepared copy, which is closed, in the place of the store at `path`, which must be locked.

    What was there is moved into a folder, which is returned; a log of writes (WAL) that stayed behind would
    be applied to the copy. When this is cut short the service refuses to start, or has one of both whole.
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
    # Made before SQLite opens it: the secret in it is for this user only.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    with closing(reading), closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
        writing.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where none can be made
    with target.open("rb") as file:
        os.fsync(file.fileno())
