"""Detects lost files of a running service, explains the loss, and stops all writes."""

import logging
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

from job_tracker.domain.errors import StoreLost, StoreUnavailable
from job_tracker.store.sqlite.contents import OpenContents
from job_tracker.store.sqlite.files import Loss, OpenFiles, lock_of, wal_of

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.2


class LossWatch:
    """Watches the files of a store. Only the writer's thread uses it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._files = OpenFiles(path)
        self._contents = OpenContents(path, connection)
        self.is_whole = True
        """Whether the existing files (the database and its write-ahead log) have all acknowledged jobs.

        False, too, if only the lock file was lost, since another service may then use the other files.
        """
        self.is_cut = False
        """Whether a file was truncated. If so, a checkpoint would damage the database."""

    def close(self) -> None:
        """Close the watched files.

        Call this after SQLite has closed the store: closing the files earlier would free SQLite's locks.
        """
        self._contents.close()

    def check(self) -> None:
        """Raise StoreLost if a file is lost, and StoreUnavailable if this cannot be determined."""
        if not (lost := self._lost()):
            return
        # If the whole folder is being removed, the files disappear one by one. The explanation must describe
        # the final state, so wait a moment.
        time.sleep(_SETTLE_SECONDS)
        lost = self._lost() or lost
        self.is_whole = False
        self.is_cut = Loss.CUT in lost.values()
        explanation = self._explain(lost)
        log.critical("%s", explanation)
        raise StoreLost(explanation)

    def _lost(self) -> Mapping[Path, Loss]:
        try:
            return self._files.lost() or self._contents.lost()
        except OSError as error:
            raise StoreUnavailable(f"the job store cannot see its files: {error}") from error

    def _explain(self, lost: Mapping[Path, Loss]) -> str:
        what = "; ".join(f"{file} {loss.value}" for file, loss in lost.items())
        return (
            f"{what} while the service was running. The service accepts no more jobs, and ends; running "
            f"groups are not touched. {self._consequence(lost)}"
        )

    def _consequence(self, lost: Mapping[Path, Loss]) -> str:
        """Return sentences that say which acknowledged jobs are safe, and how to proceed."""
        path, wal, lock = self._path, wal_of(self._path), lock_of(self._path)
        if path in lost:
            return (
                f"The jobs that were acknowledged are lost with {path.name}, except those in the present "
                f"file or in a backup. Restore {path.name}, then start the service again"
            )
        if lock in lost and wal in lost:
            return (
                "Jobs that were acknowledged since the last checkpoint may be lost, and another service may "
                "have been started here. Check that none runs, then start this one again and look for them"
            )
        if lock in lost:
            return (
                f"All jobs that were acknowledged are safe in {path.name}. But another service may have been "
                "started here: make sure that only one is started again"
            )
        if not self.is_cut and self._save():
            self.is_whole = True
            return (
                f"All jobs that were acknowledged have been saved in {path.name} from the files that were "
                "still open: start the service again"
            )
        return (
            f"Jobs that were acknowledged since the last checkpoint are lost with {wal.name}. Start the "
            "service again, and submit them again"
        )

    def _save(self) -> bool:
        """Move the commits of the write-ahead log, which is still open, into the database.

        Return whether all were moved.
        """
        try:
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            log.error("%s: the write-ahead log cannot be saved: %s", self._path, error)
            return False
        return not busy
