"""Reads the files of a tree for the backends that run programs.

The content of each file is checked against its hash, because the content may have changed after the upload.
"""

import asyncio
import errno
import hashlib
import os
import shutil
import tarfile
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from job_tracker.domain.errors import TreeDamaged
from job_tracker.files.untrusted import Suspicious, open_regular
from job_tracker.trees.manifest import File, Manifest

PIECE = 1 << 20
_BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True)
class TreeContents:
    """A complete tree that is open for reading."""

    manifest: Manifest
    blobs: int
    """The descriptor of the open folder with the contents."""

    def check_room(self, folder: Path) -> None:
        """Raise the OSError of a full disk if the disk of the folder has no room for all files."""
        if sum(file.size for file in self.manifest.files) > shutil.disk_usage(folder).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def of(self, file: File) -> Iterator[bytes]:
        """Yield the content of a file in pieces.

        Raises TreeDamaged, at the latest after the last piece, if the content is missing or was changed. If
        the stored content was changed but has the right size, it is removed, so that the next upload sends
        it again. Content of a wrong size counts as missing anyway.
        """
        digest = hashlib.sha256()
        for piece in self._pieces(file):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != file.sha256:
            with suppress(FileNotFoundError):
                if os.stat(file.sha256, dir_fd=self.blobs, follow_symlinks=False).st_size == file.size:
                    os.unlink(file.sha256, dir_fd=self.blobs)
            raise TreeDamaged(f"the content of {file.path} was changed on the service's disk")

    def _pieces(self, file: File) -> Iterator[bytes]:
        """Yield the stored content, but at most one byte more than the size of the file in the manifest.

        This additional byte makes the hash wrong, so further bytes are not needed.
        """
        try:
            content = open_regular(file.sha256, self.blobs)
        except (FileNotFoundError, Suspicious) as error:
            raise TreeDamaged(f"the content of {file.path} is gone from the service's disk") from error
        left = file.size + 1
        with content:
            while left and (piece := content.read(min(PIECE, left))):
                left -= len(piece)
                yield piece


def archived(contents: TreeContents, folder: str, shared: Sequence[str] = ()) -> Iterator[bytes]:
    """Yield a tar archive of the tree with all files below `folder`.

    The modes allow every user to change these files, since an engine unpacks the archive as root, before the
    user of the program is known. This is safe: only the program can access the unpacked files. `shared` are
    empty folders beside `folder`. In them, each user may create files, and remove the files that it has
    created. Folders that contain `folder` belong to the engine's machine or image, and may be changed by root
    only.
    """
    made = set()
    for file in contents.manifest.files:
        path, mode = f"{folder}/{file.path}", 0o777 if file.is_executable else 0o666
        for parent in _folders_of(path):
            if parent not in made:
                made.add(parent)
                is_above = f"{folder}/".startswith(f"{parent}/") and parent != folder
                yield _header(parent, 0o755 if is_above else 0o777, tarfile.DIRTYPE, 0)
        yield _header(path, mode, tarfile.REGTYPE, file.size)
        yield from contents.of(file)
        yield b"\0" * (-file.size % _BLOCK)
    for name in shared:
        yield _header(name, 0o1777, tarfile.DIRTYPE, 0)
    yield b"\0" * (2 * _BLOCK)


def in_one_stream(contents: TreeContents, *, manifest_only: bool = False) -> Iterator[bytes]:
    """Yield the manifest, an empty line, and the contents of all files in the order of the manifest.

    With `manifest_only`, leave out the contents.
    """
    yield contents.manifest.text
    yield b"\n"
    for file in () if manifest_only else contents.manifest.files:
        yield from contents.of(file)


async def read_in_threads(pieces: Generator[bytes, None, None]) -> AsyncGenerator[bytes, None]:
    """Yield the generator's output in pieces of PIECE bytes or more, except for the last piece.

    The generator runs in threads.
    """

    def read() -> bytes:
        found, size = [], 0
        while size < PIECE and (piece := next(pieces, None)) is not None:
            found.append(piece)
            size += len(piece)
        return b"".join(found)

    reading: asyncio.Future[bytes] | None = None
    try:
        while data := await asyncio.shield(reading := asyncio.ensure_future(asyncio.to_thread(read))):
            yield data
    finally:
        if reading is not None and not reading.done():
            await asyncio.wait([reading])  # a thread cannot be interrupted
        await asyncio.to_thread(pieces.close)


def _folders_of(path: str) -> Iterator[str]:
    """Yield the folders that contain a file, the outermost first."""
    names = path.split("/")
    for count in range(1, len(names)):
        yield "/".join(names[:count])


def _header(name: str, mode: int, kind: bytes, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.size = mode, kind, size
    return entry.tobuf(tarfile.PAX_FORMAT)
