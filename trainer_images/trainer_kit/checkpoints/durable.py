"""Files and folders that survive a power failure.

The content of a local file is on disk after a sync of the file, and its name after a sync of its folder. A
file in an object store is durable once it is closed, so file systems that are not local are not synced.
"""

import errno
import io
import os
from pathlib import Path
from typing import IO

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

# The errors of file systems that cannot sync folders, such as some network mounts.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def sync_open(file: IO[bytes]) -> None:
    """Wait until the content of an open file is on disk."""
    try:
        number = file.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return
    file.flush()
    os.fsync(number)


def sync_file(filesystem: AbstractFileSystem, path: str) -> None:
    """Wait until a closed file is on disk. For an object store, do nothing."""
    if isinstance(filesystem, LocalFileSystem):
        _sync(path)


def sync_folder(filesystem: AbstractFileSystem, path: str) -> None:
    """Wait until the names in a folder are on disk."""
    if isinstance(filesystem, LocalFileSystem):
        try:
            _sync(path)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise


def make_folder(filesystem: AbstractFileSystem, path: str) -> None:
    """Create a folder and its parents, unless they exist. Wait until their names are on disk."""
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
