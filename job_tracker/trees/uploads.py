"""One upload of the file contents that a tree needs. The pieces of each file's content come in order.

The content is first written to the file `incoming/<SHA-256>`. The size of this file is the position at which
another upload continues. When the content is complete and its SHA-256 is right, the file is synced to disk
and moved to `blobs`. Two uploads of the same content do not disturb each other: the second one writes a file
of its own.
"""

import fcntl
import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from threading import Lock
from typing import Any

from job_tracker.domain.errors import InvalidField, LimitExceeded, UnknownReference
from job_tracker.files.untrusted import PART, Suspicious, open_regular
from job_tracker.trees.store import ProjectTrees, TreeStatus, explained_faults

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = 1 << 20
_WAITING = 64
"""The largest number of complete contents that are synced while the next contents are written."""
_SYNCS = 8
"""The number of threads that sync."""


@dataclass(slots=True)
class _Incoming:
    """An open file whose content is not complete, or not yet in `blobs`."""

    sha256: str
    name: str
    """The name of the file below `incoming`."""
    file: int
    position: int
    digest: Any
    sync: "Future[None] | None" = None
    """The sync of the file to disk; None until the content is complete."""


class Upload:
    """The upload of contents of one tree. Its calls access the disk: make them in a thread."""

    def __init__(self, trees: ProjectTrees, tree: str) -> None:
        """Begin an upload.

        Raises UnknownReference if the tree has no manifest, and LimitExceeded if there is no room.
        """
        self._trees = trees
        self._tree = tree
        status = trees.find(tree)
        if not status.is_known:
            raise UnknownReference("tree", f"{tree} doesn't exist; send its manifest first")
        trees.check_room(status.missing)
        self._sizes = {each.sha256: each.size for each in status.missing}
        self._of_tree = trees.manifest(tree).sizes.keys()
        self._blobs = trees.blobs.open_folder()
        try:
            self._incoming = trees.incoming.open_folder()
        except BaseException:
            os.close(self._blobs)
            raise
        self._current: _Incoming | None = None
        self._complete: deque[_Incoming] = deque()
        # A cancelled call closes the upload while its thread may still be writing.
        self._in_use = Lock()
        self._is_closed = False
        self._syncs = ThreadPoolExecutor(_SYNCS, thread_name_prefix="sync of uploaded files")

    def write(self, sha256: str, offset: int, content: bytes) -> None:
        """Add a piece. Pieces of contents that are already stored are dropped.

        Raises InvalidField if a piece does not belong to the tree, begins after the bytes that have arrived,
        or ends beyond the size of the file, or if the complete content has another SHA-256. Raises
        LimitExceeded if the disk is full, and StorageUnavailable for other faults of the disk.
        """
        if sha256 not in self._of_tree:
            raise InvalidField("pieces.sha256", "it is not the SHA-256 of a file of the tree")
        with self._in_use, self._faults():
            size = self._sizes.get(sha256)
            if size is None or self._is_closed:
                return
            current = self._opened(sha256, offset)
            if current is None:
                return
            if not 0 <= offset <= current.position or offset + len(content) > size:
                raise InvalidField(
                    "pieces.offset",
                    f"{offset} with {len(content)} bytes is not allowed: {current.position} of {size} bytes "
                    f"of {sha256} have arrived; continue after them",
                )
            new = content[current.position - offset :]
            _write(current.file, new)
            current.digest.update(new)
            current.position += len(new)
            if current.position == size:
                self._current = None
                self._check(current)
                current.sync = self._syncs.submit(os.fsync, current.file)
                self._complete.append(current)
                del self._sizes[sha256]
                self._move(_WAITING)

    def finish(self) -> TreeStatus:
        """Move the complete contents durably to `blobs`, and return which contents are still missing."""
        with self._in_use, self._faults():
            self._move(0)
            # This sync also covers contents that another upload has just moved to `blobs`.
            os.fsync(self._blobs)
        return self._trees.find(self._tree)

    def close(self) -> None:
        """End the upload. Parts of incomplete contents stay for the next upload."""
        with self._in_use:
            if self._is_closed:
                return
            self._is_closed = True
            for each in (*self._complete, *([self._current] if self._current else [])):
                self._release(each)
            self._complete.clear()
            self._current = None
            self._syncs.shutdown()
            os.close(self._blobs)
            os.close(self._incoming)

    def _opened(self, sha256: str, offset: int) -> _Incoming | None:
        """Open the file of the content, and return it; None if another upload has completed the content.

        If another upload is writing the content, copy at most the first `offset` bytes that it has written.
        """
        if self._current is not None and self._current.sha256 == sha256:
            return self._current
        if self._current is not None:
            self._release(self._current)
            self._current = None
        if self._is_there(sha256):
            del self._sizes[sha256]
            return None
        name, file = sha256, self._open(sha256)
        if not self._own(file, name):
            os.close(file)
            name = f"{sha256}.{token_hex(4)}{PART}"
            file = self._open(name)
            self._copy_beginning(sha256, file, offset)
        self._current = _Incoming(sha256, name, file, 0, hashlib.sha256())
        if os.fstat(file).st_size > self._sizes[sha256]:
            os.ftruncate(file, 0)
        while piece := os.read(file, _READ):
            self._current.digest.update(piece)
            self._current.position += len(piece)
        return self._current

    def _open(self, name: str) -> int:
        file = os.open(name, _FLAGS, 0o600, dir_fd=self._incoming)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        os.unlink(name, dir_fd=self._incoming)
        return os.open(name, _FLAGS | os.O_EXCL, 0o600, dir_fd=self._incoming)

    def _own(self, file: int, name: str) -> bool:
        """Lock the file, and return True.

        Return False if another upload has locked it, or has moved or removed it in the meantime.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(name, dir_fd=self._incoming, follow_symlinks=False)
        except (BlockingIOError, FileNotFoundError):
            return False
        return there.st_ino == os.fstat(file).st_ino

    def _copy_beginning(self, sha256: str, file: int, size: int) -> None:
        """Copy to `file` at most the first `size` bytes that another upload has written.

        Then go back to the beginning of `file`: the caller hashes these bytes, and continues after them.
        """
        with suppress(FileNotFoundError, Suspicious), open_regular(sha256, self._incoming) as other:
            _write(file, other.read(size))
        os.lseek(file, 0, os.SEEK_SET)

    def _is_there(self, sha256: str) -> bool:
        try:
            there = os.stat(sha256, dir_fd=self._blobs, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(there.st_mode) and there.st_size == self._sizes[sha256]

    def _check(self, complete: _Incoming) -> None:
        found = complete.digest.hexdigest()
        if found != complete.sha256:
            self._drop(complete)
            raise InvalidField(
                "pieces.content",
                f"the content that was sent as {complete.sha256} has the SHA-256 {found}: the file may have "
                "changed while it was read; send it again",
            )

    def _move(self, waiting: int) -> None:
        """Move complete contents to `blobs` once they are synced. Wait until at most `waiting` are left."""
        while self._complete:
            each = self._complete[0]
            assert each.sync is not None, "a sync begins when a content is complete"
            if not each.sync.done() and len(self._complete) <= waiting:
                return
            each.sync.result()
            with suppress(FileNotFoundError):  # the file was removed, so the content counts as missing
                os.rename(each.name, each.sha256, src_dir_fd=self._incoming, dst_dir_fd=self._blobs)
            self._close(each)
            self._complete.popleft()

    def _release(self, each: _Incoming) -> None:
        """Close the file of a content. Remove the file if no other upload can continue it."""
        if each.name != each.sha256:
            self._drop(each)
        else:
            self._close(each)

    def _drop(self, each: _Incoming) -> None:
        with suppress(FileNotFoundError):
            os.unlink(each.name, dir_fd=self._incoming)
        self._close(each)

    def _close(self, each: _Incoming) -> None:
        if each.sync is not None:
            wait([each.sync])  # otherwise the sync might reach another file with the same descriptor
        os.close(each.file)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn faults of the disk in the block into LimitExceeded or StorageUnavailable.

        If the disk is full, the contents of this upload that are not in `blobs` yet are removed.
        """
        try:
            with explained_faults(self._trees.incoming.path):
                yield
        except LimitExceeded:
            for each in (*self._complete, *([self._current] if self._current else [])):
                self._drop(each)
            self._complete.clear()
            self._current = None
            raise


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
