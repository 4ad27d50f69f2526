"""Files of jobs in storage: models, and logs of ended groups. Jobs can write to the same storage.

Local files are opened as untrusted (untrusted.py). Object stores need no such care: they have no links.
Every call may block: make it in a thread (remote.py).
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from job_tracker.files.untrusted import Place

_LONGEST_KEY = 1024
"""Longest name of an object in S3 and in Google Cloud Storage, in bytes."""


class JobFiles(Protocol):
    """A folder in storage.

    Paths are relative to it. Errors are raised as the storage's library raises them.
    """

    def files(self, most: int) -> list[tuple[str, int]]:
        """Return the names and sizes of the regular files below the folder, sorted; [] if it does not exist.

        At most about `most` entries are read.
        """
        ...

    def is_there(self, path: str) -> bool:
        """Return whether the file exists."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading.

        Raises FileNotFoundError. Raises Suspicious if it is not a regular file, and OSError (ENAMETOOLONG) if
        its name is too long.
        """
        ...

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing, and create its folders.

        If the file exists, local storage raises FileExistsError; an object store replaces the file.
        """
        ...

    def publish(self, source: str, target: str) -> None:
        """Rename a written file to its final name durably. An earlier file of that name is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        ...


def job_files(folder: str, *, within: str = "") -> JobFiles:
    """Return access to the files below `folder`, an fsspec URI.

    `within` is the URI of a folder above `folder`; "" stands for `folder` itself. Below `within`, links and
    other unexpected files are refused. The path of `within` itself may have links, since only operators can
    change it.
    """
    filesystem, path = fsspec.core.url_to_fs(folder)
    if not isinstance(filesystem, LocalFileSystem):
        filesystem.invalidate_cache()  # so that files that another service has just written are found
        return _Objects(filesystem, path)
    root = fsspec.core.url_to_fs(within)[1] if within else path
    if not Path(path).is_relative_to(root):
        root = path  # the job was accepted with another storage.uri
    return _LocalFiles(Place(Path(root), Path(path).relative_to(root).parts))


class _LocalFiles:
    """See JobFiles."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def files(self, most: int) -> list[tuple[str, int]]:
        try:
            return self._place.files(most)
        except FileNotFoundError:
            return []

    def is_there(self, path: str) -> bool:
        return (self._place / path).is_there()

    def open(self, path: str) -> BinaryIO:
        return (self._place / path).open()

    def create(self, path: str) -> BinaryIO:
        place = self._place / path
        place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.parent.make_folder()
        return place.create()

    def publish(self, source: str, target: str) -> None:
        place = self._place / source
        with place.open() as file:
            os.fsync(file.fileno())
        place.move_to(self._place / target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            (self._place / path).remove()


class _Objects:
    """See JobFiles."""

    def __init__(self, filesystem: AbstractFileSystem, path: str) -> None:
        self._filesystem: Any = filesystem
        self._path = path

    def files(self, most: int) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        with suppress(FileNotFoundError):
            for folder, _, files in self._filesystem.walk(self._path, detail=True):
                inside = folder.removeprefix(self._path).strip("/")
                named = ((f"{inside}/{name}" if inside else name, files[name]) for name in files)
                found += [(name, int(status.get("size") or 0)) for name, status in named if name]
                if len(found) >= most:
                    break
        return sorted(found)

    def is_there(self, path: str) -> bool:
        return bool(self._filesystem.exists(f"{self._path}/{path}"))

    def open(self, path: str) -> BinaryIO:
        whole = f"{self._path}/{path}"
        # The length is checked here, since S3 answers with "bad request", which can have other reasons.
        if len(whole.lstrip("/").partition("/")[2].encode()) > _LONGEST_KEY:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        file: BinaryIO = self._filesystem.open(whole, "rb")
        return file

    def create(self, path: str) -> BinaryIO:
        whole = f"{self._path}/{path}"
        self._filesystem.makedirs(whole.rpartition("/")[0], exist_ok=True)
        file: BinaryIO = self._filesystem.open(whole, "wb")
        return file

    def publish(self, source: str, target: str) -> None:
        self._filesystem.mv(f"{self._path}/{source}", f"{self._path}/{target}")

    def remove(self, path: str) -> None:
        whole = f"{self._path}/{path}"
        with suppress(FileNotFoundError):
            self._filesystem.rm(whole, recursive=True)
