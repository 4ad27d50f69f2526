"""The logs of ended groups, in storage: any service finds them there, whatever becomes of machines."""

import gzip
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import fsspec

from job_tracker.errors import LogsNotFound
from job_tracker.logs import records
from job_tracker.logs.records import BEGINNING
from job_tracker.model import GroupRef
from job_tracker.storage import in_thread, patiently

Result = TypeVar("Result")

_PIECE = 64 * 1024
_WRITE = 1 << 20
_LEVEL = 1  # a tenth is left of most logs, and the levels above cost more than they save
_PATIENCE_SECONDS = 20.0


class LogArchive:
    """<root>/<folder of the job>/<attempt>/<rank>.log.gz: the records of a rank's log, compressed.

    A log is there as a whole or not at all, and may be written again. Storage that gives no answer to a
    call for `patience` seconds counts as away. Every method raises StorageUnavailable.
    """

    def __init__(self, root: str, *, patience: float = _PATIENCE_SECONDS) -> None:
        """`root` is an fsspec URI."""
        self._root = root
        self._patience = patience

    async def write(self, group: GroupRef, rank: int, pieces: AsyncGenerator[bytes, None]) -> None:
        """Keep a log in place of what was kept before. Raises what `pieces` raise, having changed nothing."""
        path = self._path(group, rank)
        async with aclosing(pieces):
            gathered = await anext(pieces, b"")  # if there is no log, nothing is begun
            upload = await self._call(lambda: _Upload(path))
            try:
                async for piece in pieces:
                    gathered += piece
                    if len(gathered) >= _WRITE:
                        await self._call(partial(upload.write, gathered))
                        gathered = b""
                await self._call(partial(upload.write, gathered))
                await self._call(upload.publish)
            except BaseException:
                in_thread(upload.abandon, f"abandon {path}")
                raise

    async def has(self, group: GroupRef, rank: int) -> bool:
        """Whether the rank's log is kept."""
        path = self._path(group, rank)
        return await self._call(lambda: _is_there(path))

    async def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The records after a time, or the last of them. Raises LogsNotFound if there is no such log."""
        skipped = 0
        if tail_lines is not None:
            skipped = -tail_lines
            async for piece in self._read(group, rank):  # twice, and never much of it at once
                skipped += piece.count(b"\n")
        async for piece in self._read(group, rank):
            if skipped > 0:
                lines = piece.count(b"\n")
                rest = b"".join(records.records_of(piece)[skipped:]) if skipped < lines else b""
                skipped -= lines
            else:
                rest = piece
            if rest and (wanted := records.later(rest, after)):
                yield wanted

    async def delete(self, job_folder: str) -> None:
        """Forget the logs of all attempts of a job, by its folder. It may be repeated."""
        await self._call(lambda: _remove(f"{self._root}/{job_folder}"))

    def _path(self, group: GroupRef, rank: int) -> str:
        return f"{self._root}/{group.job_folder}/{group.attempt}/{rank}.log.gz"

    async def _read(self, group: GroupRef, rank: int) -> AsyncGenerator[bytes, None]:
        path = self._path(group, rank)
        download = await self._call(lambda: _download(path))
        if download is None:
            raise LogsNotFound(f"rank {rank} of {group.name} has no log in storage")
        try:
            rest = b""
            while data := await self._call(download.read):
                rest += data
                end = rest.rfind(b"\n") + 1
                if end:
                    yield rest[:end]
                    rest = rest[end:]
        finally:
            in_thread(download.close, f"close {path}")

    async def _call(self, work: Callable[[], Result]) -> Result:
        return await patiently(work, f"the storage of logs at {self._root}", seconds=self._patience)


class _Upload:
    """A compressed file that is written aside and then moved to its place; all of it may block."""

    def __init__(self, uri: str) -> None:
        self._filesystem, self._path = fsspec.core.url_to_fs(uri)
        self._aside = f"{self._path}.{uuid4().hex[:8]}.part"
        self._filesystem.makedirs(self._path.rpartition("/")[0], exist_ok=True)
        self._file = self._filesystem.open(self._aside, "wb")
        # No time and no name in it, so that the same log is the same file, whoever writes it.
        self._gzip = gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=self._file, mtime=0)

    def write(self, data: bytes) -> None:
        self._gzip.write(data)

    def publish(self) -> None:
        self._gzip.close()
        self._file.close()
        self._filesystem.mv(self._aside, self._path)

    def abandon(self) -> None:
        for undo in (self._gzip.close, self._file.close, lambda: self._filesystem.rm_file(self._aside)):
            with suppress(Exception):  # what is left goes when the job is forgotten
                undo()


class _Download:
    """A compressed file that is read; all of it may block."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._gzip = gzip.GzipFile(fileobj=file)

    def read(self) -> bytes:
        return self._gzip.read(_PIECE)

    def close(self) -> None:
        self._gzip.close()
        self._file.close()


def _download(uri: str) -> _Download | None:
    filesystem, path = fsspec.core.url_to_fs(uri)
    filesystem.invalidate_cache()  # a log that another service wrote a moment ago is there
    try:
        return _Download(filesystem.open(path, "rb"))
    except FileNotFoundError:
        return None


def _is_there(uri: str) -> bool:
    filesystem, path = fsspec.core.url_to_fs(uri)
    filesystem.invalidate_cache()
    return bool(filesystem.exists(path))


def _remove(uri: str) -> None:
    filesystem, path = fsspec.core.url_to_fs(uri)
    filesystem.invalidate_cache()
    with suppress(FileNotFoundError):
        filesystem.rm(path, recursive=True)
