"""Files that jobs can write, opened as hostile.

A job may put a link, a pipe, a file without end or a million files where the service expects a file of its
own. So a `Place` is reached from a root that only the service writes, one component at a time: no link is
followed, only regular files are opened, opening never waits, and reading and listing stop at a bound.

Calls touch the disk: make them in a thread.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import BinaryIO

PART = ".part"
"""How the names of files end that are being written, or whose writer died."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DEEPEST = 64
_AT_ONCE = 10_000


class Suspicious(OSError):
    """There is something else than the service puts there: a link, a pipe, too large a file."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a folder below `root`, which is trusted; nothing below it is.

    Every method raises OSError; FileNotFoundError if it is not there, and Suspicious if it, or a folder on
    the way, is not what it should be.
    """

    root: Path
    parts: tuple[str, ...] = ()

    def __truediv__(self, name: str) -> "Place":
        """A place below. Raises Suspicious for a name that leads elsewhere."""
        parts = PurePosixPath(name).parts
        if not parts or "\0" in name or name.startswith("/") or ".." in parts:
            raise Suspicious(errno.EINVAL, "not the name of a file here", name)
        return Place(self.root, (*self.parts, *parts))

    @property
    def path(self) -> Path:
        """Where it is. Opening that path follows links."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last component."""
        return self.parts[-1]

    @property
    def parent(self) -> "Place":
        """The folder it is in."""
        return Place(self.root, self.parts[:-1])

    def open(self) -> BinaryIO:
        """Open the regular file for reading."""
        with self._parent() as folder:
            return open_regular(self.name, folder)

    def read(self, most: int) -> bytes:
        """Read the whole file, which has at most so many bytes."""
        with self.open() as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise Suspicious(errno.EFBIG, f"has more than {most} bytes", str(self.path))
        return content

    def open_folder(self) -> int:
        """Open the folder: a descriptor."""
        descriptor = os.open(self.root, _FOLDER)
        try:
            for part in self.parts:
                below = _open(part, _FOLDER | os.O_NOFOLLOW, descriptor)
                os.close(descriptor)
                descriptor = below
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def is_there(self) -> bool:
        """Whether there is anything by this name."""
        try:
            with self._parent() as folder:
                os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, Suspicious):
            return False
        return True

    def is_folder(self) -> bool:
        """Whether there is a folder by this name."""
        try:
            if not self.parts:
                return self.root.is_dir()
            with self._parent() as folder:
                return stat.S_ISDIR(os.stat(self.name, dir_fd=folder, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError, Suspicious):
            return False

    def names(self, most: int) -> list[str]:
        """The names in the folder, sorted; of a larger one, so many of them."""
        folder = self.open_folder()
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in islice(entries, most))
        finally:
            os.close(folder)

    def files(self, most: int) -> list[tuple[str, int]]:
        """The regular files in the folder and below, by name, each with its size in bytes.

        Looks at no more than `most` entries, and goes no deeper than 64 folders.
        """
        found: list[tuple[str, int]] = []
        folders, left = [""], most
        while folders and left > 0:
            inside = folders.pop()
            place = self / inside if inside else self
            try:
                descriptor = place.open_folder()
            except (FileNotFoundError, Suspicious):
                if inside:
                    continue  # it was replaced since it was listed
                raise
            for name, status in _entries(descriptor, left):
                left -= 1
                path = f"{inside}/{name}" if inside else name
                if stat.S_ISREG(status.st_mode):
                    found.append((path, status.st_size))
                elif stat.S_ISDIR(status.st_mode) and path.count("/") < _DEEPEST:
                    folders.append(path)
        return sorted(found)

    def make_folder(self, *, parents: bool = True) -> None:
        """Make the folder, and with `parents` those that it is in, below the root; nothing if it is there."""
        descriptor = os.open(self.root, _FOLDER)
        try:
            for number, part in enumerate(self.parts, start=1):
                if parents or number == len(self.parts):
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                below = _open(part, _FOLDER | os.O_NOFOLLOW, descriptor)
                os.close(descriptor)
                descriptor = below
        finally:
            os.close(descriptor)

    def create(self) -> BinaryIO:
        """Open a new file for writing, which its owner alone may read. Raises FileExistsError."""
        with self._parent() as folder:
            return os.fdopen(_open_file(self.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder), "wb")

    def append(self) -> int:
        """Open a file, new or not, for writing at its end: a descriptor."""
        with self._parent() as folder:
            return _open_file(self.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, folder)

    def publish(self, content: bytes, *, anew: bool = False) -> None:
        """Write a file that is whole whenever it is there, and on the disk when this returns.

        Raises FileExistsError if it is to be `anew` and is there already.
        """
        aside = self.parent / f"{self.name}.{token_hex(4)}{PART}"
        try:
            with aside.create() as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.move_to(self, replace=not anew)
        finally:
            aside.unlink()

    def move_to(self, target: "Place", *, replace: bool = True) -> None:
        """Rename it; that is on the disk when this returns.

        Raises FileExistsError if something is there that is not to be replaced.
        """
        with self._parent() as source, target._parent() as goal:
            if replace:
                os.rename(self.name, target.name, src_dir_fd=source, dst_dir_fd=goal)
            else:
                os.link(self.name, target.name, src_dir_fd=source, dst_dir_fd=goal, follow_symlinks=False)
            os.fsync(goal)

    def open_to_owner(self) -> None:
        """Give the folder's owner all rights to it, which a job that runs as the same user may have taken."""
        with self._parent() as folder:
            _open_to_owner(self.name, folder)

    def unlink(self) -> None:
        """Remove the file, or the link itself; nothing if there is none."""
        with suppress(FileNotFoundError), self._parent() as folder:
            os.unlink(self.name, dir_fd=folder)

    def remove(self) -> None:
        """Remove the folder with all that is in it, or the file; nothing if there is none.

        However deep it is, three descriptors do: what lies deeper is moved up first.
        """
        try:
            with suppress(PermissionError):  # of another owner
                self.open_to_owner()
            top = self.open_folder()
        except FileNotFoundError:
            return
        except Suspicious:
            self.unlink()
            return
        try:
            _empty(top)
        finally:
            os.close(top)
        with suppress(FileNotFoundError), self._parent() as folder:
            os.rmdir(self.name, dir_fd=folder)

    @contextmanager
    def _parent(self) -> Iterator[int]:
        descriptor = self.parent.open_folder()
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def place_of(path: Path) -> Place:
    """The place of a path whose folder is trusted."""
    return Place(path.parent, (path.name,))


def open_regular(name: str, folder: int) -> BinaryIO:
    """Open a regular file in an open folder for reading. Raises as the methods of Place do."""
    return os.fdopen(_open_file(name, os.O_RDONLY, folder), "rb")


def _open_file(name: str, flags: int, folder: int) -> int:
    descriptor = _open(name, flags | _SAFELY, folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise Suspicious(errno.EINVAL, "is not a regular file", name)


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        # A link, a folder, a socket or a pipe that nobody reads, and what is no folder.
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR):
            raise Suspicious(error.errno, "is not what the service put there", name) from error
        raise


def _open_to_owner(name: str, folder: int) -> None:
    """Give the owner of a folder in an open one all rights to it."""
    # A descriptor for no more than the path needs no right to the folder itself; chmod follows links.
    descriptor = _open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{descriptor}").chmod(mode | stat.S_IRWXU)
    finally:
        os.close(descriptor)


def _entries(folder: int, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """The first so many entries of an open folder, which is closed afterwards."""
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(most), entries, strict=False):
                with suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(folder)


def _empty(top: int) -> None:
    """Remove all that is in an open folder; raises the first OSError when the rest is removed."""

    def take(folder: int, name: str, is_folder: bool) -> None:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            return
        with suppress(PermissionError, Suspicious):
            _open_to_owner(name, folder)
        if folder != top:
            os.rename(name, f".{token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
        else:
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=top)
            try:
                _take_each(below, take)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)

    _take_each(top, take)


def _take_each(folder: int, take: Callable[[int, str, bool], None]) -> None:
    """Call `take` with every entry of an open folder until there is none."""
    while inside := _some(folder):
        failure: OSError | None = None
        for name, is_folder in inside:
            try:
                take(folder, name, is_folder)
            except FileNotFoundError:
                continue  # another one removed it
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _some(folder: int) -> list[tuple[str, bool]]:
    """The first entries of an open folder, and whether each is a folder."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]
