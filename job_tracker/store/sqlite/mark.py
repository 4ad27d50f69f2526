"""The mark, a file beside the database. It has the store's id and the highest job id that may be in use."""

import json
import logging
import sqlite3
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from job_tracker.domain.errors import StoreRefused, StoreUnavailable
from job_tracker.store.sqlite import files

log = logging.getLogger(__name__)

_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the mark."""

    store_id: str
    last_id: int
    """The highest id that may have been given to a job."""
    is_exact: bool
    """Whether `last_id` was certainly given to a job, or skipped.

    If not, the store is open or was not closed properly. Then any of the 1,000 ids up to `last_id` may be
    unused.
    """

    @property
    def surely_given(self) -> int:
        """The highest id that was certainly given to a job, or skipped."""
        return self.last_id if self.is_exact else self.last_id - _BLOCK

    def lacks_jobs(self, store_id: str, last_id: int, *, had_log: bool) -> bool:
        """Return whether the database may lack jobs with ids above `last_id`, the highest id that it knows.

        `store_id` is the database's own id. `had_log` says whether the write-ahead log had content before the
        database was opened.
        """
        log_is_lost = not self.is_exact and not had_log
        is_behind = last_id < self.surely_given or (log_is_lost and last_id < self.last_id)
        return self.store_id == store_id and is_behind


def read(path: Path) -> Mark | None:
    """Return the mark of the database at `path`; None if there is none.

    A new store, and a store that only earlier versions have opened, have no mark.
    Raises StoreRefused if the mark is damaged, and OSError if it cannot be read.
    """
    file = files.mark_of(path)
    try:
        content = json.loads(file.read_text())
        return Mark(str(content["store_id"]), int(content["last_id"]), bool(content["is_exact"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreRefused(
            f"{file}: is damaged ({error!r}). Nothing was changed. The file records which ids were given to "
            f"jobs: restore it; or, if {path.name} is whole and up to date, move it away"
        ) from error


def refuse_a_mixture(path: Path, mark: Mark | None) -> None:
    """Raise StoreRefused if the write-ahead log belongs to another database: SQLite would apply it anyway."""
    wal = files.wal_of(path)
    if mark is None or not has_content(wal) or not has_content(path):
        return
    found = _identity_without_log(path)
    if found is None or found == mark.store_id:  # None: the id is only in the log, as after a first start
        return
    raise StoreRefused(
        f"{path}: is not the database that {wal.name} belongs to. The log belongs to job store "
        f"{mark.store_id}, and the database to {found}; SQLite would mix both. Nothing was changed. "
        f"Restore the earlier {path.name}; "
        f"or, to use this one, move {wal.name} and {files.mark_of(path).name} away"
    )


class Marker:
    """Keeps the mark up to date. One thread uses it at a time."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, before: Mark | None, *, had_log: bool
    ) -> None:
        """Continue from the mark `before`, and skip the ids that lost jobs may have had.

        `had_log` says whether the write-ahead log had content before the database was opened.
        """
        self._path = path
        [store_id] = connection.execute("SELECT id FROM identity").fetchone()
        last = self._last_id(connection)
        if before is not None and before.lacks_jobs(store_id, last, had_log=had_log):
            _skip_ids(path, connection, last, before.last_id)
            last = before.last_id
        self._mark = Mark(store_id, last, is_exact=True)
        # A lower bound of the number of further ids that the mark covers. The mark may cover more ids, since
        # a reserved id becomes free again after a rollback.
        self._free = 0
        if self._mark != before:
            self._write(self._mark)

    def reserve(self, connection: sqlite3.Connection) -> None:
        """Record durably that the next id may be in use. Raises StoreUnavailable if this fails.

        So even if the write-ahead log is lost, no later job gets this id.
        """
        if not self._free:
            following = self._last_id(connection) + 1
            if self._mark.is_exact or following > self._mark.last_id:
                try:
                    self._write(Mark(self._mark.store_id, following + _BLOCK - 1, is_exact=False))
                except OSError as error:
                    raise StoreUnavailable(f"the job store cannot write: {error}") from error
            self._free = self._mark.last_id - following + 1
        self._free -= 1

    def ids_were_skipped(self) -> None:
        """Record that ids were skipped. Before the next reservation, the last id is looked up again."""
        self._free = 0

    def settle(self, connection: sqlite3.Connection) -> None:
        """Record the last id as exact. Call this before the log is moved into the database.

        Otherwise, the next start finds an inexact mark and no log, and assumes that jobs were lost.
        """
        exact = Mark(self._mark.store_id, self._last_id(connection), is_exact=True)
        if exact != self._mark:
            self._write(exact)

    @staticmethod
    def _last_id(connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
        return int(row[0]) if row else 0

    def _write(self, mark: Mark) -> None:
        file = files.mark_of(self._path)
        part = file.with_name(f"{file.name}.part")
        files.replace_durably(part, file, json.dumps(asdict(mark)).encode())
        self._mark, self._free = mark, 0


def has_content(file: Path) -> bool:
    """Return whether the file exists and is not empty."""
    return file.exists() and file.stat().st_size > 0


def _skip_ids(path: Path, connection: sqlite3.Connection, last: int, given: int) -> None:
    log.critical(
        "%s: jobs %d to %d may have been acknowledged, and are missing: the file is an older copy, or %s was "
        "removed while the service was down. They are lost unless there is a backup; their files in the "
        "storage are kept. If another program, such as sqlite3, has opened the file in the meantime, no job "
        "is lost: that program has moved the log into the file. New jobs get ids from %d on, so that no job "
        "continues from the files of another.",
        *(path, last + 1, given, files.wal_of(path).name, given + 1),
    )
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs'")
    connection.execute("INSERT INTO sqlite_sequence VALUES ('jobs', ?)", (given,))
    connection.execute("COMMIT")


def _identity_without_log(path: Path) -> str | None:
    """Return the store's id from the database file alone, without the log.

    None: the file has no id, or cannot be read.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        with suppress(sqlite3.DatabaseError):
            row = connection.execute("SELECT id FROM identity").fetchone()
            return str(row[0]) if row else None
    finally:
        connection.close()
    return None
