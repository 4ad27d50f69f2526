"""Staged datasets that stay on a machine's disk, up to a total size, for all its processes and jobs.

A dataset is a folder, named by a key. A process that uses a dataset holds a shared lock on the dataset's lock
file. Before a process removes a dataset to make room, it takes an exclusive lock on this file. A folder is
filled under a temporary name, KEY.*.partial, and then renamed, so each dataset is complete. Until the
renaming, the process that fills the folder holds a lock on the folder. So a folder with a temporary name and
without a lock was left by a killed process.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from trainer_kit.errors import DataError, StorageError
from trainer_kit.staging.pieces import files_in

_NAME: Final = "trainer-kit-staging"
"""The subfolder with the datasets. The configured folder itself may have other files, too."""
_LOCK: Final = ".lock"
_PARTIAL: Final = ".partial"


class Kept:
    """The datasets in a folder."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Create the folder. Raises StorageError if that fails."""
        self.folder = folder / _NAME
        self._most = most_bytes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"STAGING_FOLDER: cannot make {self.folder}: {error}") from error

    @contextmanager
    def used(self, key: str) -> Iterator[Path]:
        """Yield the folder of a dataset, which may not exist yet. The block protects it from `make_room`."""
        lock = self._lock_of(key)
        lock.touch()
        with _held(lock, fcntl.LOCK_SH):
            folder = self.folder / key
            with suppress(FileNotFoundError):
                os.utime(folder)  # records its last use
            yield folder

    def make_room(self, size: int, key: str) -> None:
        """Remove unused datasets, the least recently used first, until a dataset of `size` bytes fits.

        Leftovers of killed processes are always removed.

        If other processes of this machine are filling the same dataset (`key`), their copies do not count,
        because only one copy stays. Raises DataError if the dataset does not fit.
        """
        if size > self._most:
            raise DataError(
                f"the dataset has {size:,} bytes, but STAGING_GB allows {self._most:,}: raise STAGING_GB, "
                "or use DATA_STAGING=none"
            )
        with _held(self.folder, fcntl.LOCK_EX):
            kept = {path: _size_of(path) for path in self.folder.iterdir() if path.is_dir()}
            for path in sorted(kept, key=lambda path: (not _is_partial(path), _last_used(path))):
                if not _is_partial(path) and sum(kept.values()) + size <= self._most:
                    break
                if self._removed(path) or (_is_partial(path) and path.name.startswith(f"{key}.")):
                    del kept[path]
        if sum(kept.values()) + size > self._most:
            raise DataError(
                f"{self.folder} has datasets of {sum(kept.values()):,} bytes in use, and STAGING_GB allows "
                f"{self._most:,}: this dataset of {size:,} does not fit. Raise STAGING_GB"
            )

    @contextmanager
    def filling(self, key: str) -> Iterator[Path]:
        """Yield a new folder, which becomes the dataset at the end of the `with` block if the block succeeds.

        If another process has filled the dataset meanwhile, its copy stays instead.
        """
        partial = self.folder / f"{key}.{secrets.token_hex(4)}{_PARTIAL}"
        with ExitStack() as filled:
            filled.callback(shutil.rmtree, partial, ignore_errors=True)
            with _held(self.folder, fcntl.LOCK_EX):  # so that `make_room` spares `partial`
                partial.mkdir()
                filled.enter_context(_held(partial, fcntl.LOCK_EX))
            yield partial
            with suppress(OSError):  # another process has filled it
                partial.rename(self.folder / key)

    def forget(self, key: str) -> None:
        """Remove a damaged dataset, even if it is in use."""
        aside = self.folder / f"{key}.{secrets.token_hex(4)}{_PARTIAL}"
        with suppress(OSError):
            (self.folder / key).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _removed(self, path: Path) -> bool:
        """Remove a dataset, or the leftovers of a killed process, if the folder is not in use.

        Return whether the folder is gone.
        """
        lock = path if _is_partial(path) else self._lock_of(path.name)
        try:
            with _held(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            return not path.exists()
        except BlockingIOError:
            return False
        return not path.exists()

    def _lock_of(self, key: str) -> Path:
        # The file is never removed: a lock on a removed file would protect nothing.
        return self.folder / f"{key}{_LOCK}"


@contextmanager
def _held(path: Path, how: int) -> Iterator[None]:
    """Hold a lock on a file or a folder. With LOCK_NB, raises BlockingIOError if another process holds it."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, how)
        yield
    finally:
        os.close(opened)


def _is_partial(path: Path) -> bool:
    return path.name.endswith(_PARTIAL)


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0.0


def _size_of(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return sum(file.size for file in files_in(folder))
    return 0
