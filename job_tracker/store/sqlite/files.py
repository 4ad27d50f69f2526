"""The files of a store: locked, private, and looked at again, as they may vanish below a running service."""

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
"""Device and inode."""


class Loss(Enum):
    """What has happened to a file that the service holds open."""

    REMOVED = "was removed"
    REPLACED = "was replaced by another file"
    CUT = "was emptied, cut short or overwritten"


def wal_of(path: Path) -> Path:
    """The write-ahead log of a database: what was committed and is not in the database file yet."""
    return path.with_name(path.name + "-wal")


def index_of(path: Path) -> Path:
    """The index of the write-ahead log, which is memory that processes share."""
    return path.with_name(path.name + "-shm")


def mark_of(path: Path) -> Path:
    """The file that says whose the database is, and which ids may have been given."""
    return path.with_name(path.name + ".mark")


def all_of(path: Path) -> tuple[Path, ...]:
    """The database and what is kept beside it of its content."""
    return (path, wal_of(path), index_of(path), mark_of(path))


def replace_durably(part: Path, file: Path, content: bytes) -> None:
    """Have this content in the file, all of it or none, and on the disk; `part` is written first."""
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
    """Have the names in the folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_of(path: Path) -> Path:
    """The file that the service which owns a store holds locked."""
    return path.with_name(path.name + ".lock")


class OpenFiles:
    """The files that a service has opened, and whether they still are where it opened them.

    SQLite goes on to commit to files that nothing names any more, and these end with the process.
    """

    def __init__(self, path: Path) -> None:
        """Remember the files as they are. The write-ahead log exists from the first read on.

        Unless the file system cannot share memory, as some over a network: SQLite does without it there.
        """
        self._opened: Mapping[Path, Identity] = {
            file: _identity(file.stat())
            for file in (path, wal_of(path), lock_of(path))
            if file != wal_of(path) or file.exists()
        }

    def lost(self) -> dict[Path, Loss]:
        """Those that are gone. Raises OSError if that cannot be seen. It takes microseconds."""
        found = {}
        for file, identity in self._opened.items():
            try:
                if _identity(file.stat()) != identity:
                    found[file] = Loss.REPLACED
            except (FileNotFoundError, NotADirectoryError):
                found[file] = Loss.REMOVED
        return found


def lock(path: Path) -> int:
    """Lock the store at `path` for this process: the kernel lets go when it ends, however it ends.

    Makes the folder and the database file if there are none. Both, and all that belongs to the store, are
    this user's alone from then on: who reads the secret in it can forge reports. Raises StoreRefused.
    """
    for file in (*all_of(path), lock_of(path)):
        if file.is_symlink():
            # SQLite keeps its files beside what a link points to, and the lock here would not be theirs.
            raise StoreRefused(
                f"{file}: is a link to {file.readlink()}, and a service that uses that file would not be "
                "seen. Nothing was changed. Use the folder of the file itself as storage.data_dir, with "
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
    """Keep other users from the database, made empty if there is none: what SQLite adds has its mode."""
    # Not through a descriptor of an existing database: to close one frees the locks that SQLite has on it.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE_FILE))
    for file in (*all_of(path), lock_of(path)):
        if file.exists():
            _tighten(file, _PRIVATE_FILE)


def _locked(path: Path) -> int:
    """A descriptor of the file at `path`, locked. Raises BlockingIOError if another process has locked it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two calls the file may have been removed, and another service have locked a new one.
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
        if status.st_mode & stat.S_ISVTX:  # as /tmp, which is everybody's
            raise PermissionError(f"{path} is a folder that users share")
        path.chmod(mode)
    except OSError as error:
        log.warning(
            "%s is open to other users (mode %o), and this one cannot change that (%s). What is in the job "
            "store is enough to forge reports of training: set mode %o, or choose another storage.data_dir",
            *(path, stat.S_IMODE(status.st_mode), error, mode),
        )
    else:
        log.info("%s had mode %o, and is its owner's alone now", path, stat.S_IMODE(status.st_mode))


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
