"""Checks that the open files have the content that SQLite wrote, since another program may truncate them."""

import errno
import os
import sqlite3
import struct
from pathlib import Path

from job_tracker.store.sqlite import files
from job_tracker.store.sqlite.files import Loss

_WAL_HEADER, _FRAME_HEADER = 32, 24
_PASSING = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))
# The index header, which is stored twice: page size, frames in the log, pages in the database, salts
# (sqlite.org, "WAL-mode File Format"). Numbers have the byte order of the machine, salts the byte order of
# the log.
_INDEX = struct.Struct("=14xHII8x8s8x")


class OpenContents:
    """Compares the database and the write-ahead log with SQLite's own index of the log.

    It compares the sizes of both files and the salts in the header of the log. It also looks for the store's
    id in the database. After a truncation of the log, SQLite would append further commits behind a gap, and
    would not find them at the next start. SQLite's index of the log, in shared memory, shows the sizes that
    the files must have, even after checkpoints by other processes.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Open the files.

        They stay open until `close` is called: closing a descriptor earlier would free SQLite's locks on the
        file. Since they stay open, the checks also work when the process cannot open more files.
        """
        self._path, self._wal = path, files.wal_of(path)
        self._size = path.stat().st_size
        index = files.index_of(path)
        self._index = os.open(index, os.O_RDONLY | os.O_CLOEXEC) if index.exists() else None
        self._database = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._log = os.open(self._wal, os.O_RDONLY | os.O_CLOEXEC) if self._wal.exists() else None
        self._connection = connection
        [self._identity] = connection.execute("SELECT CAST(id AS BLOB) FROM identity").fetchone()
        self._identity_page, self._page_size = 0, 0
        # If another process reads an older state, the id may still be only in the log. In this case, the id
        # is not checked.
        self._has_identity = self._shows_identity()

    def lost(self) -> dict[Path, Loss]:
        """Return the files that lack content, with the kind of loss.

        The result is empty if SQLite's index of the log is missing, or if it changes during the call. Raises
        OSError if a file cannot be read.
        """
        # The index is read before the files. If it shows that the log was reset, the checkpoint before the
        # reset has already written the log's pages to the database, so the database, which is read later, has
        # them. In the other order, pages that are written between the two reads could look lost.
        if (known := self._known()) is None:
            return {}
        page_size, frames, pages, salts = known
        found = {}
        size = self._path.stat().st_size
        # A vacuum shrinks the database and moves its pages. These changes may still be only in the log.
        lacking = self._lacking(size, pages, page_size)
        if lacking and not lacking <= self._logged(frames, page_size):
            found[self._path] = Loss.CUT
        else:
            self._size = size
        if frames and self._log is not None:
            header = os.pread(self._log, _WAL_HEADER, 0)
            length = os.fstat(self._log).st_size
            if header[16:24] != salts or length < _WAL_HEADER + frames * (_FRAME_HEADER + page_size):
                found[self._wal] = Loss.CUT
        return found if not found or self._known() == known else {}

    def close(self) -> None:
        """Close the files. Call this after SQLite has closed its own files."""
        for descriptor in (self._database, self._index, self._log):
            if descriptor is not None:
                os.close(descriptor)

    def _lacking(self, size: int, pages: int, page_size: int) -> set[int]:
        """Return the numbers of the pages that the database file has lost.

        The file has `size` bytes, and should have `pages` pages. The page with the store's id counts as lost
        if it no longer has the id.
        """
        lacking: set[int] = set()
        if size < self._size:
            lacking.update(range(size // page_size + 1, pages + 1))
        if self._has_identity and not self._shows_identity():
            lacking.add(self._identity_page)
        return lacking

    def _logged(self, frames: int, page_size: int) -> set[int]:
        """Return the numbers of the pages in the first `frames` frames of the log."""
        if self._log is None:
            return set()
        frame = _FRAME_HEADER + page_size
        places = range(_WAL_HEADER, _WAL_HEADER + frames * frame, frame)
        return {int.from_bytes(os.pread(self._log, 4, place), "big") for place in places}

    def _shows_identity(self) -> bool:
        """Return whether the database file itself has the id of this store."""
        if self._identity in self._identity_page_content():
            return True
        # A vacuum may have moved the page.
        query = "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema WHERE name = ?"
        try:
            found = self._connection.execute(query, ("identity",)).fetchone()
            self._identity_page, self._page_size = found
        except (sqlite3.DatabaseError, TypeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:
                raise OSError(errno.EAGAIN, str(error)) from error
            return False
        return self._identity in self._identity_page_content()

    def _identity_page_content(self) -> bytes:
        """Return the content of the page that last had the id; empty before that page is known."""
        size = self._page_size
        return os.pread(self._database, size, (self._identity_page - 1) * size) if size else b""

    def _known(self) -> tuple[int, int, int, bytes] | None:
        """Return page size, frames, pages and salts from SQLite's index of the log.

        None: the index does not exist, or another process is writing it.
        """
        if self._index is None:
            return None
        content = os.pread(self._index, 2 * _INDEX.size, 0)
        first, second = content[: _INDEX.size], content[_INDEX.size :]
        if first != second or len(first) != _INDEX.size:
            return None
        page_size, frames, pages, salts = _INDEX.unpack(first)
        return page_size if page_size > 1 else 65536, frames, pages, salts
