"""Files of a dataset as pieces of equal size; only the last one may be smaller.

A piece may have parts of several files.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fsspec import AbstractFileSystem

from trainer_kit.errors import DataError, StorageError

LEAST, PIECE = 64 << 10, 4 << 20
"""The lower and the upper limit of the size of pieces, in bytes; only the last piece may be smaller.

A rank holds about three pieces in memory at a time.
"""
_EACH = 4
"""The usual number of pieces for each rank. The limits of a piece's size may lead to fewer or more pieces.
With fewer pieces than ranks, some ranks would have nothing to read."""


class File(NamedTuple):
    """A file of the dataset."""

    name: str
    """The path below the dataset's folder."""
    size: int


class Span(NamedTuple):
    """A part of a file."""

    name: str
    start: int
    size: int


Piece = tuple[Span, ...]


def size_of(piece: Piece) -> int:
    """Return the number of bytes of the piece."""
    return sum(span.size for span in piece)


def piece_size(total: int, ranks: int) -> int:
    """Return the number of bytes of a piece, if `ranks` ranks share `total` bytes."""
    return min(PIECE, max(LEAST, -(-total // (_EACH * ranks))))


def pieces_of(files: Sequence[File], most: int) -> list[Piece]:
    """Divide the content of the files, one after the other, into pieces of at most `most` bytes."""
    pieces: list[Piece] = []
    spans: list[Span] = []
    room = most
    for name, size in files:
        start = 0
        while start < size:
            part = min(room, size - start)
            spans.append(Span(name, start, part))
            start, room = start + part, room - part
            if not room:
                pieces.append(tuple(spans))
                spans, room = [], most
    return [*pieces, tuple(spans)] if spans else pieces


@dataclass
class Source:
    """A folder in storage."""

    filesystem: AbstractFileSystem
    folder: str
    bytes_read: int = 0

    def files(self) -> list[File]:
        """Return all files below the folder, sorted by name.

        Raises DataError if there are none, and StorageError if storage fails or does not know a size.
        """
        with _naming(self.folder):
            found = self.filesystem.find(self.folder, detail=True)
        root = f"{self.folder}/"
        files = [
            File(path.removeprefix(root), self._size(path, found[path]["size"])) for path in sorted(found)
        ]
        if not files:
            raise DataError(f"{self.folder} has no files: is it the folder of the dataset's version?")
        return files

    def _size(self, path: str, listed: int | None) -> int:
        with _naming(path):
            size = self.filesystem.size(path) if listed is None else listed
        if size is None:  # for example a page that an HTTP server generates
            raise StorageError(f"{path}: storage does not say how large it is. Use DATA_STAGING=none")
        return int(size)

    def read(self, piece: Piece) -> bytes:
        """Return the content of a piece from storage.

        Raises DataError if a file is missing or has changed, and StorageError if storage fails. Both name the
        file.
        """
        parts = []
        for name, start, size in piece:
            path = f"{self.folder}/{name}"
            with _naming(path):
                part = self.filesystem.cat_file(path, start=start, end=start + size)
            if len(part) != size:
                raise DataError(
                    f"{path} has changed: {len(part)} of {size} bytes at {start}. The files of a version "
                    "must not change: publish a new version"
                )
            parts.append(part)
        self.bytes_read += size_of(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn an error of storage into a DataError or StorageError that names the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error}") from error


def make(folder: Path, files: Sequence[File]) -> None:
    """Make the files in a local folder, with their sizes and without their content.

    Raises DataError for a name that leads out of the folder, and StorageError if a file cannot be made.
    """
    for name, size in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise DataError(f"the file {name!r} is not below the dataset's folder")
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.truncate(size)
        except OSError as error:  # for example, object storage may have files a and a/b
            raise StorageError(f"cannot make {path}: {error}") from error


def write(folder: Path, piece: Piece, content: memoryview) -> None:
    """Write a piece into the local files. Raises StorageError if that fails."""
    begin = 0
    for name, start, size in piece:
        try:
            with (folder / name).open("r+b") as file:
                file.seek(start)
                file.write(content[begin : begin + size])
        except OSError as error:
            raise StorageError(f"cannot write {folder / name}: {error}") from error
        begin += size


def files_in(folder: Path) -> Iterator[File]:
    """Yield all files below a local folder. In each folder, they are sorted by name."""
    for parent, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = Path(parent) / name
            yield File(path.relative_to(folder).as_posix(), path.stat().st_size)
