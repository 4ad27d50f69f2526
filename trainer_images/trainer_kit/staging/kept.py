"""Staged datasets that stay on the disk of a machine, up to a size, for all processes and jobs there.

A dataset is a folder, named by a key. It is filled under another name and renamed, so it is complete. A
process that uses it holds a shared lock on its lock file, and it is removed only under an exclusive one.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from trainer_kit.errors import DataError, StorageError
from trainer_kit.staging.pieces import files_in

_LOCK, _PARTIAL = ".lock", ".partial"


class Kept:
    """The datasets in a folder."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most = most_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"STAGING_FOLDER: cannot make {folder}: {error}") from error

    @contextmanager
    def used(self, key: str) -> Iterator[Path]:
        """Yield the folder of a dataset, which may not exist yet. It stays during the `with` block."""
        with self._locked(key, fcntl.LOCK_SH):
            folder = self._folder / key
            if folder.exists():
                os.utime(folder)  # when it was last used
            yield folder

    def make_room(self, size: int) -> None:
        """Remove datasets that are not in use until one of this size fits, the least recently used first.

        Raises DataError if it does not fit.
        """
        if size > self._most:
            raise DataError(
                f"the dataset has {size:,} bytes, but STAGING_GB allows {self._most:,}: raise it, or use "
                "DATA_STAGING=none"
            )
        kept = {path: _size_of(path) for path in self._folder.iterdir() if path.is_dir()}
        for path in sorted(kept, key=_last_used):
            if sum(kept.values()) + size <= self._most:
                return
            if self._removed(path):
                del kept[path]
        if sum(kept.values()) + size > self._most:
            raise DataError(
                f"{self._folder} has datasets of {sum(kept.values()):,} bytes in use, and STAGING_GB allows "
                f"{self._most:,}: this dataset of {size:,} does not fit. Raise STAGING_GB"
            )

    @contextmanager
    def filling(self, key: str) -> Iterator[Path]:
        """Yield a new folder, which becomes the dataset at the end of the `with` block if that succeeds."""
        partial = self._folder / f"{key}.{secrets.token_hex(4)}{_PARTIAL}"
        partial.mkdir()
        try:
            yield partial
            with suppress(OSError):  # another process has filled it meanwhile
                partial.rename(self._folder / key)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def forget(self, key: str) -> None:
        """Remove a damaged dataset from those that are found. Who uses it keeps its files."""
        aside = self._folder / f"{key}.{secrets.token_hex(4)}{_PARTIAL}"
        with suppress(OSError):
            (self._folder / key).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _removed(self, path: Path) -> bool:
        """Remove a dataset, or what a killed process has left of one, unless it is in use."""
        try:
            with self._locked(path.name.split(".")[0], fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(path, ignore_errors=True)
                return True
        except BlockingIOError:
            return False

    @contextmanager
    def _locked(self, key: str, how: int) -> Iterator[IO[bytes]]:
        # The file stays: a lock on a file that another process has removed would protect nothing.
        with (self._folder / f"{key}{_LOCK}").open("ab") as file:
            fcntl.flock(file, how)
            yield file


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0.0


def _size_of(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return sum(file.size for file in files_in(folder))
    return 0
