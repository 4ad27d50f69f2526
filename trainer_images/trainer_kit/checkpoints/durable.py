"""Files and folders that outlive a power cut.

A local file is on the disk once it is synced, and its name once the folder that holds it is. What is
written to an object store is durable when it is closed, so there is nothing to do for any other file system.
"""

import errno
import io
import os
from pathlib import Path
from typing import IO

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

# The answers of file systems that cannot sync folders, such as some network mounts.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def sync_open(file: IO[bytes]) -> None:
    """Waits until what was written to an open file is on the disk."""
    try:
        number = file.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return
    file.flush()
    os.fsync(number)


def sync_file(filesystem: AbstractFileSystem, path: str) -> None:
    """Waits until a file that was closed is on the disk."""
    if isinstance(filesystem, LocalFileSystem):
        _sync(path)


def sync_folder(filesystem: AbstractFileSystem, path: str) -> None:
    """Waits until the names in a folder are on the disk."""
    if isinstance(filesystem, LocalFileSystem):
        try:
            _sync(path)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise


def make_folder(filesystem: AbstractFileSystem, path: str) -> None:
    """Makes a folder and those above it, unless they are there."""
    new: list[Path] = []
    if isinstance(filesystem, LocalFileSystem):
        new = [folder for folder in (Path(path), *Path(path).parents) if not folder.exists()]
    filesystem.makedirs(path, exist_ok=True)
    for folder in new:
        sync_folder(filesystem, str(folder.parent))


def _sync(path: str) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
