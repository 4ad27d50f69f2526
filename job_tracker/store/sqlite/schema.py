"""The tables, the migration of files of earlier versions, and checks before a file is used."""

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from job_tracker.common import local_faults
from job_tracker.domain.errors import StoreRefused
from job_tracker.store.sqlite import files, mark
from job_tracker.store.sqlite.mark import Marker
from job_tracker.store.sqlite.migrations import MIGRATIONS

# "TRNG", which marks a file as a job store (sqlite.org, "PRAGMA application_id").
APPLICATION_ID = 0x54524E47
_FULL = 1 << 20
"""With less free space than this, in bytes, a disk counts as full."""


def connect(path: Path, *, read_only: bool = False, cache_kib: int = 16384) -> sqlite3.Connection:
    """Return a connection in autocommit mode: transactions begin and end explicitly."""
    # A read-only connection makes no checkpoint when it is closed, even if it is the last connection.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous = FULL")  # commits are durable when they return
    connection.execute("PRAGMA fullfsync = ON")  # the same on macOS; no effect elsewhere
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    else:
        # A statement journal of more than 64 KiB would be written to a temporary file. An insertion into many
        # indexes would write such a file each time, which doubles its cost.
        connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def open_file(path: Path, used: Sequence[Path] = ()) -> tuple[sqlite3.Connection, Marker]:
    """Open the file, and create or migrate its tables. Return the connection, and the marker of the file.

    Raises StoreRefused, and changes nothing, for a file that is damaged, was made by another program, was
    written by a newer version, or has the write-ahead log of another database beside it. A missing file whose
    log exists is refused, too. `used` are folders with files of jobs. If at least one such folder is given, a
    file that never had a job is refused, too.
    """
    try:
        before = mark.read(path)
        mark.refuse_a_mixture(path, before)
        had_log = mark.has_content(files.wal_of(path))
        if mark.has_content(path):
            refuse_what_is_not_ours(path)
        _refuse_as_empty(path, used)
        files.make_private(path)
        connection = connect(path)
        connection.execute("PRAGMA journal_mode = WAL")
        _migrate(connection)
        # After this checkpoint, not only the log but also the file itself has the store's id; see contents.py
        # and mark.py.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        marker = Marker(path, connection, before, had_log=had_log)
        return connection, marker
    except (sqlite3.DatabaseError, OSError) as error:
        raise StoreRefused(
            f"{path}: cannot be used as the job store ({error}). Its jobs were not changed. "
            f"{_advice(path, error)}"
        ) from error


def _advice(path: Path, error: Exception) -> str:
    """Return advice for an error that prevents the use of a file."""
    remedy = local_faults.remedy_of(error) if isinstance(error, OSError) else None
    with suppress(OSError):  # the folder cannot be read: the first error says more
        if remedy is None and shutil.disk_usage(path.parent).free < _FULL:
            remedy = local_faults.DISK_FULL  # SQLite may report a full disk as an I/O error
    if remedy is None:
        return "Restore it from a backup, or move it away to start with an empty store."
    return f"The fault may be temporary: {remedy}; then start the service again."


def refuse_what_is_not_ours(path: Path) -> None:
    """Raise StoreRefused for a file of another program or a newer version, and DatabaseError for a damaged
    file.
    """
    # The connection is read-only, since even closing a normal connection may write: it moves the log into the
    # file.
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if application_id != APPLICATION_ID and tables:
            raise StoreRefused(f"{path}: is a database of another program; choose another file for the jobs")
        if version > len(MIGRATIONS):
            raise StoreRefused(
                f"{path}: was written by a newer version of this service (schema {version}; this one "
                f"knows {len(MIGRATIONS)}); start that version, or choose another file"
            )
        problems = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise sqlite3.DatabaseError("damaged: " + "; ".join(problems))
    finally:
        connection.close()


def _refuse_as_empty(path: Path, used: Sequence[Path]) -> None:
    """Raise StoreRefused if the file never had a job, although its log or the folders in `used` show that
    jobs existed.
    """
    wal = files.wal_of(path)
    if not mark.has_content(path) and mark.has_content(wal):
        raise StoreRefused(
            f"{path}: is gone, but {wal.name} still exists and has the last writes. Nothing was changed. "
            f"Restore the {path.name} to which it belongs; or move {wal.name} away to start without its "
            "jobs."
        )
    if not used or has_had_jobs(path):
        return
    problem = (
        "never had a job" if mark.has_content(path) else "is empty" if path.exists() else "does not exist"
    )
    raise StoreRefused(
        f"{path}: {problem}, but jobs have used {', '.join(map(str, used))}. An empty job store does not "
        "know these jobs: their running groups would be left unattended, or stopped as strays. Nothing was "
        f"changed. Restore {path.name} from a backup, with its -wal file if there is one; or move these "
        "folders away; or start once with storage.start_anew=true to begin without these jobs."
    )


def has_had_jobs(path: Path) -> bool:
    """Return whether the file ever had a job, even a deleted one: the sequence of ids shows this."""
    if not mark.has_content(path):
        return False
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_sequence'")
        if not tables.fetchone()[0]:  # a service was killed before it created tables
            return False
        return bool(connection.execute("SELECT count(*) FROM sqlite_sequence").fetchone()[0])


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for target, script in enumerate(MIGRATIONS[version:], start=version + 1):
        # Each version has its own transaction, so a crash leaves the file at the previous version.
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {target}; COMMIT;"
        )
