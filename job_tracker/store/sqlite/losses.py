"""Files that vanish below a running service: nothing is acknowledged any more, and it says what is lost."""

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
    """Looks after the files of a store. Used by the writer's thread only."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._files = OpenFiles(path)
        self._contents = OpenContents(path, connection)
        self.is_whole = True
        """Whether all that was acknowledged is in files that are there, or is when SQLite closes them."""
        self.is_cut = False
        """Whether what is open must not be moved into the database any more: it would be damaged by that."""

    def close(self) -> None:
        """Let go of what it looks at, after SQLite has."""
        self._contents.close()

    def check(self) -> None:
        """Raise StoreLost if a file is gone, and StoreUnavailable if that cannot be seen."""
        if not (lost := self._lost()):
            return
        # Who removes a folder takes one file after another: what is said has to be true after the last.
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
            f"{what}, below the running service. No job is accepted any more, and the service ends; running "
            f"groups are left alone. {self._consequence(lost)}"
        )

    def _consequence(self, lost: Mapping[Path, Loss]) -> str:
        """What is safe of that which was acknowledged, and what to do."""
        path, wal, lock = self._path, wal_of(self._path), lock_of(self._path)
        if path in lost:
            return (
                f"The jobs that were acknowledged are lost with {path.name}, but for those in the file that "
                f"is there now, or in a backup. Restore {path.name}, then start the service again"
            )
        if lock in lost and wal in lost:
            return (
                "Jobs that were acknowledged since the last checkpoint may be lost, and another service may "
                "have been started here. See that none runs, then start this one again and look for them"
            )
        if lock in lost:
            return (
                f"All jobs that were acknowledged are safe in {path.name}. But another service may have been "
                "started here: see that only one is started again"
            )
        if not self.is_cut and self._save():
            self.is_whole = True
            return (
                f"All jobs that were acknowledged have been saved in {path.name} from what was still open: "
                "start the service again"
            )
        return (
            f"Jobs that were acknowledged since the last checkpoint are lost with {wal.name}. Start the "
            "service again, and submit them again"
        )

    def _save(self) -> bool:
        """Move what is in the write-ahead log, which is still open here, into the database."""
        try:
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            log.error("%s: the write-ahead log cannot be saved: %s", self._path, error)
            return False
        return not busy
