"""The archive: logs of ended groups in shared storage, where every replica can read them."""

import gzip
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

from job_tracker.domain.errors import LogsNotFound
from job_tracker.domain.group import GroupRef
from job_tracker.files.job_files import JobFiles, job_files
from job_tracker.files.remote import in_thread, patiently
from job_tracker.files.untrusted import Suspicious
from job_tracker.logs import records
from job_tracker.logs.packed import BlockWriter, Index, Start, read_index
from job_tracker.logs.records import BEGINNING, LONGEST_RECORD

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_ASIDE = ".part"
_MOST_FILES = 10_000
"""The largest number of files of a group that `tidy` checks: a file for each rank, and unfinished uploads."""
_PIECE = 64 * 1024
_WRITE = 1 << 20
_PATIENCE_SECONDS = 20.0


class LogArchive:
    """Compressed logs in <root>/<folder of the job>/<attempt>/<rank>.log.gz.

    A log is either complete or absent. A log may be written again. Storage that does not answer a call within
    `patience` seconds counts as unavailable. Every method may raise StorageUnavailable.
    """

    def __init__(self, root: str, *, within: str = "", patience: float = _PATIENCE_SECONDS) -> None:
        """`root` is an fsspec URI. For `within`, see job_files."""
        self._root = root
        self._within = within
        self._patience = patience

    async def write(self, group: GroupRef, rank: int, pieces: AsyncGenerator[bytes, None]) -> None:
        """Store a log, and replace an earlier one.

        If `pieces` raises an error, the error is passed on, and nothing is changed.
        """
        path = self._path(group, rank)
        async with aclosing(pieces):
            gathered = await anext(pieces, b"")  # if there is no log, this raises before the upload begins
            upload = _Upload(self._files, path)
            try:
                async for piece in pieces:
                    gathered += piece
                    if len(gathered) >= _WRITE:
                        await self._call(partial(upload.write, gathered))
                        gathered = b""
                await self._call(partial(upload.publish, gathered))  # most logs fit into this one call
            except BaseException:
                in_thread(upload.abandon, f"abandon {path}")
                raise

    async def has(self, group: GroupRef, rank: int) -> bool:
        """Return whether the rank's log is stored."""
        path = self._path(group, rank)
        return await self._call(lambda: self._files().is_there(path))

    async def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the records later than `after`; with `tail_lines`, only those in the last `tail_lines` lines.

        Raises LogsNotFound if there is no log.
        """
        start = Start()
        if after or tail_lines is not None:
            index = await self._index(group, rank)
            if index is not None:
                start = index.start(after, tail_lines)
            elif tail_lines is not None:
                lines = 0
                async for piece in self._read(group, rank):  # the file is read twice, to bound the memory
                    lines += piece.count(b"\n")
                start = Start(skipped=lines - tail_lines)
        skipped = start.skipped
        async for piece in self._read(group, rank, start.offset):
            if skipped > 0:
                lines = piece.count(b"\n")
                rest = b"".join(records.records_of(piece)[skipped:]) if skipped < lines else b""
                skipped -= lines
            else:
                rest = piece
            if rest and (wanted := records.later(rest, after)):
                yield wanted

    async def tidy(self, group: GroupRef) -> None:
        """Remove unfinished uploads of a group whose logs are all stored.

        If another replica is uploading one of these logs again at this moment, that upload fails. On its next
        try, the other replica finds that the log is stored.
        """
        folder = f"{group.job_folder}/{group.attempt}"

        def remove() -> None:
            files = job_files(f"{self._root}/{folder}", within=self._within)
            for name, _ in files.files(_MOST_FILES):
                if name.endswith(_ASIDE):
                    files.remove(name)

        await self._call(remove)

    async def delete(self, job_folder: str) -> None:
        """Delete the logs of all attempts of a job. The call may be repeated."""
        await self._call(lambda: self._files().remove(job_folder))

    def _path(self, group: GroupRef, rank: int) -> str:
        return f"{group.job_folder}/{group.attempt}/{rank}.log.gz"

    async def _index(self, group: GroupRef, rank: int) -> Index | None:
        """Return the index of a log; None if it has no index or a damaged one.

        Logs of a single block, and logs that an earlier version of the service wrote, have no index.
        """
        path = self._path(group, rank)

        def read() -> Index | None:
            try:
                with self._files().open(path) as file:
                    return read_index(file)
            except (FileNotFoundError, Suspicious):
                raise LogsNotFound(f"rank {rank} of {group.name} has no log in storage") from None

        return await self._call(read)

    async def _read(self, group: GroupRef, rank: int, offset: int = 0) -> AsyncGenerator[bytes, None]:
        path = self._path(group, rank)
        download = await self._call(
            lambda: _download(self._files(), path, offset), lambda late: late.close() if late else None
        )
        if download is None:
            raise LogsNotFound(f"rank {rank} of {group.name} has no log in storage")
        try:
            rest = b""
            while data := await self._call(download.read):
                end = data.rfind(b"\n") + 1
                if end:
                    yield rest + data[:end]
                    rest = b""
                rest += data[end:]
                if len(rest) > LONGEST_RECORD and not end:
                    log.warning(
                        "%s is damaged: %d bytes without a line break; the rest is not read", path, len(rest)
                    )
                    return
        finally:
            in_thread(download.close, f"close {path}")

    def _files(self) -> JobFiles:
        return job_files(self._root, within=self._within)

    async def _call(
        self, work: Callable[[], Result], dispose: Callable[[Result], object] | None = None
    ) -> Result:
        what = f"the storage of logs at {self._root}"
        return await patiently(work, what, seconds=self._patience, dispose=dispose)


class _Upload:
    """A compressed file, written under a temporary name and then moved into place. All calls may block.

    A call may hang in its thread. So `abandon`, but no other method, may be called before the previous call
    has returned.
    """

    def __init__(self, storage: Callable[[], JobFiles], path: str) -> None:
        self._storage = storage
        self._path = path
        self._aside = f"{path}.{uuid4().hex[:8]}{_ASIDE}"
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._begun: tuple[JobFiles, BinaryIO, BlockWriter] | None = None

    def write(self, data: bytes) -> None:
        with self._lock:
            _, _, blocks = self._begin()
            blocks.write(data)

    def publish(self, rest: bytes) -> None:
        with self._lock:
            files, file, blocks = self._begin()
            blocks.write(rest)
            blocks.finish()
            file.close()
            self._check()  # checked again, since closing may have taken long
            files.publish(self._aside, self._path)

    def abandon(self) -> None:
        self._is_abandoned = True  # set without the lock, so that a hanging call will see it
        with self._lock:
            if self._begun is None:
                return
            files, file, _ = self._begun
            for undo in (file.close, lambda: files.remove(self._aside)):
                with suppress(Exception):  # `tidy` removes the remains
                    undo()

    def _begin(self) -> tuple[JobFiles, BinaryIO, BlockWriter]:
        self._check()
        if self._begun is None:
            files = self._storage()
            file = files.create(self._aside)
            self._begun = files, file, BlockWriter(file)
        return self._begun

    def _check(self) -> None:
        if self._is_abandoned:
            raise ValueError(f"the upload of {self._aside} was abandoned")


class _Download:
    """A compressed file that is read. All calls may block."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._gzip = gzip.GzipFile(fileobj=file)

    def read(self) -> bytes:
        return self._gzip.read(_PIECE)

    def close(self) -> None:
        self._gzip.close()
        self._file.close()


def _download(files: JobFiles, path: str, offset: int) -> _Download | None:
    try:
        file = files.open(path)
    except (FileNotFoundError, Suspicious):
        return None
    if offset:
        file.seek(offset)
    return _Download(file)
