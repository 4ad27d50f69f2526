"""The file beside the database: whose it is, and which ids may have been given, even if the log is lost."""

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
    """What the file says."""

    store_id: str
    last_id: int
    """No id beyond this one was given."""
    is_exact: bool
    """Whether it was given, as the store was closed since; else a block of ids up to it may be free."""

    @property
    def surely_given(self) -> int:
        """The last id of which it is certain that it was given."""
        return self.last_id if self.is_exact else self.last_id - _BLOCK

    def leaves_out(self, store_id: str, last_id: int, *, had_log: bool) -> bool:
        """Whether a database whose newest id is `last_id` may lack jobs that had later ones."""
        log_is_lost = not self.is_exact and not had_log
        is_behind = last_id < self.surely_given or (log_is_lost and last_id < self.last_id)
        return self.store_id == store_id and is_behind


def read(path: Path) -> Mark | None:
    """The mark of the database at `path`; None if there is none, as beside one of an older version."""
    file = files.mark_of(path)
    try:
        content = json.loads(file.read_text())
        return Mark(str(content["store_id"]), int(content["last_id"]), bool(content["is_exact"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreRefused(
            f"{file}: is damaged ({error!r}). Nothing was changed. It says which ids were given to jobs: "
            f"restore it; or, if {path.name} is whole and as new as it was, move it away"
        ) from error


def refuse_a_mixture(path: Path, mark: Mark | None) -> None:
    """Raise StoreRefused if the log of writes is of another database: SQLite would apply it nevertheless."""
    wal = files.wal_of(path)
    if mark is None or not has_content(wal) or not has_content(path):
        return
    found = _identity_without_log(path)
    if found is None or found == mark.store_id:  # None: it is in the log alone, as at a first start
        return
    raise StoreRefused(
        f"{path}: is not the database that {wal.name} belongs to (job store {mark.store_id}; this one is "
        f"{found}), and both together would be a mixture. Nothing was changed. Put the {path.name} back "
        f"that was here; or, to use this one, move {wal.name} and {files.mark_of(path).name} away"
    )


class Marker:
    """Keeps the file. Used by one thread at a time."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, before: Mark | None, *, had_log: bool
    ) -> None:
        """Go on from what the file said `before`, leaving ids out that jobs may have had which are lost.

        `had_log` says whether there was something in the log of writes before the database was opened.
        """
        self._path = path
        [store_id] = connection.execute("SELECT id FROM identity").fetchone()
        last = self._last_id(connection)
        if before is not None and before.leaves_out(store_id, last, had_log=had_log):
            _leave_out(path, connection, last, before.last_id)
            last = before.last_id
        self._mark = Mark(store_id, last, is_exact=True)
        if self._mark != before:
            self._write(self._mark)

    def reserve(self, connection: sqlite3.Connection) -> None:
        """See that the next id may be given: it is on the disk that it was, also if the log is lost."""
        following = self._last_id(connection) + 1
        if following <= self._mark.last_id and not self._mark.is_exact:
            return
        try:
            self._write(Mark(self._mark.store_id, following + _BLOCK - 1, is_exact=False))
        except OSError as error:
            raise StoreUnavailable(f"the job store cannot write: {error}") from error

    def settle(self, connection: sqlite3.Connection) -> None:
        """Write down that no ids are open, as all that was written is about to be in the database itself."""
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
        self._mark = mark


def has_content(file: Path) -> bool:
    """Whether there is such a file, and something in it."""
    return file.exists() and file.stat().st_size > 0


def _leave_out(path: Path, connection: sqlite3.Connection, last: int, given: int) -> None:
    log.critical(
        "%s: jobs %d to %d may have been acknowledged, and are not there: the file is older than what was "
        "given, or %s was removed while the service "
        "was down. They are lost unless there is a backup, and what they left in the storage "
        "is kept. If another program, such as sqlite3, has opened the file meanwhile, it has moved the log "
        "into it, and none is lost. New jobs get ids from %d on, so that none goes on from the files of "
        "another.",
        *(path, last + 1, given, files.wal_of(path).name, given + 1),
    )
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs'")
    connection.execute("INSERT INTO sqlite_sequence VALUES ('jobs', ?)", (given,))
    connection.execute("COMMIT")


def _identity_without_log(path: Path) -> str | None:
    """The store's id in the database file itself; None if it has none that can be read."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        with suppress(sqlite3.DatabaseError):
            row = connection.execute("SELECT id FROM identity").fetchone()
            return str(row[0]) if row else None
    finally:
        connection.close()
    return None
