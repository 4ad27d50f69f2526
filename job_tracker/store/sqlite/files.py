"""The files of a store: locking, permissions, and checks that they still exist."""

import fcntl
import logging
import os
import stat
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from job_tracker.domain.errors import StoreRefused

log = logging.getLogger(__name__)

_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
_OTHERS = 0o077

Identity = tuple[int, int]
"""The device and the inode of a file."""


class Loss(Enum):
    """The ways in which the service can lose a file that it has open."""

    REMOVED = "was removed"
    REPLACED = "was replaced by another file"
    CUT = "was emptied, cut short or overwritten"


def wal_of(path: Path) -> Path:
    """Return the path of the write-ahead log, which has the commits that are not in the database file yet."""
    return path.with_name(path.name + "-wal")


def index_of(path: Path) -> Path:
    """Return the path of the index of the write-ahead log, which processes map as shared memory."""
    return path.with_name(path.name + "-shm")


def mark_of(path: Path) -> Path:
    """Return the path of the mark: a file with the store's id and the highest job id that may be in use."""
    return path.with_name(path.name + ".mark")


def all_of(path: Path) -> tuple[Path, ...]:
    """Return the paths of the database and of the files beside it that belong to its content."""
    return (path, wal_of(path), index_of(path), mark_of(path))


def replace_durably(part: Path, file: Path, content: bytes) -> None:
    """Give the file this content, atomically and durably. The content is first written to the file `part`."""
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.rename(file)
    sync(file.parent)


def sync(folder: Path) -> None:
    """Make the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_of(path: Path) -> Path:
    """Return the path of the lock file. The service that uses the store holds a lock on this file."""
    return path.with_name(path.name + ".lock")


class OpenFiles:
    """Checks that the opened files are still at their paths.

    SQLite keeps committing to files that were removed, and these commits are lost when the process ends.
    """

    def __init__(self, path: Path) -> None:
        """Record the inodes of the files.

        The write-ahead log exists by now, since the store was read. But on file systems without shared
        memory, such as some network file systems, there is no such log.
        """
        self._opened: Mapping[Path, Identity] = {
            file: _identity(file.stat())
            for file in (path, wal_of(path), lock_of(path))
            if file != wal_of(path) or file.exists()
        }

    def lost(self) -> dict[Path, Loss]:
        """Return the files that are lost, with the kind of loss.

        This takes microseconds. Raises OSError if the state of a file cannot be determined.
        """
        found = {}
        for file, identity in self._opened.items():
            try:
                if _identity(file.stat()) != identity:
                    found[file] = Loss.REPLACED
            except (FileNotFoundError, NotADirectoryError):
                found[file] = Loss.REMOVED
        return found


def lock(path: Path) -> int:
    """Lock the store at `path` for this process, and return the descriptor of the lock.

    Raises StoreRefused if another service uses the store, if one of the store's files is a link, or if the
    store's folder cannot be written. The kernel frees the lock when the process ends. The folder is created
    if needed. If possible, other users lose access to the folder, since anyone who can read the report keys
    in the store can forge reports.
    """
    for file in (*all_of(path), lock_of(path)):
        if file.is_symlink():
            # If `path` is a link, SQLite keeps its files beside the target of the link, where this lock would
            # not protect them.
            raise StoreRefused(
                f"{file}: is a link to {file.readlink()}, and another service that uses that file would go "
                "unnoticed. Nothing was changed. Use the folder of that file as storage.data_dir, with "
                f"{path.name} as its name; a link to a whole folder is allowed"
            )
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        _tighten(path.parent, _PRIVATE_FOLDER)
        held = _locked(lock_of(path))
    except BlockingIOError as error:
        raise StoreRefused(
            f"{path}: another training service uses this job store; stop it, or choose another data "
            "folder (storage.data_dir)"
        ) from error
    except OSError as error:
        raise StoreRefused(f"{path}: its folder cannot be written ({error})") from error
    return held


def make_private(path: Path) -> None:
    """Remove other users' access to all files of the store, if possible; create the database if needed.

    SQLite gives its other files the mode of the database.
    """
    # An existing database is not opened: closing a descriptor would free SQLite's locks on it.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE_FILE))
    for file in (*all_of(path), lock_of(path)):
        if file.exists():
            _tighten(file, _PRIVATE_FILE)


def _locked(path: Path) -> int:
    """Lock the file at `path`, and return its descriptor. Raises BlockingIOError if it is locked already."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two calls, the file may have been removed, and another service may have locked a new
            # file.
            if _identity(os.fstat(descriptor)) == _identity(path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _tighten(path: Path, mode: int) -> None:
    status = path.stat()
    if not status.st_mode & _OTHERS:
        return
    try:
        if status.st_mode & stat.S_ISVTX:  # a shared folder such as /tmp
            raise PermissionError(f"{path} is a folder that is shared by several users")
        path.chmod(mode)
    except OSError as error:
        log.warning(
            "%s is open to other users (mode %o), and this user cannot change that (%s). Anyone who can "
            "read the job store can forge training reports: set mode %o, or choose another storage.data_dir",
            *(path, stat.S_IMODE(status.st_mode), error, mode),
        )
    else:
        log.info("%s had mode %o; other users can no longer access it", path, stat.S_IMODE(status.st_mode))


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
