"""Safe access to files that jobs can write.

Where the service expects its own file, a job may have put a link, a pipe, a huge file or a million files. So
a `Place` is opened from a root that only the service can change, one component at a time: links are not
followed, only regular files are opened, opening never blocks, and reading and listing are bounded.

Calls access the disk: make them in a thread.
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
"""Suffix of files that are being written, or whose writer died."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DEEPEST = 64
_AT_ONCE = 10_000


class Suspicious(OSError):
    """An unexpected file, such as a link, a pipe or a file that is too large."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder below `root`. The root is trusted; everything below it is not.

    Unless the description of a method says otherwise, the method raises FileNotFoundError if the place does
    not exist, and Suspicious if the place, or a folder above it, is of an unexpected kind. Other failures
    raise other kinds of OSError.
    """

    root: Path
    parts: tuple[str, ...] = ()

    def __truediv__(self, name: str) -> "Place":
        """Return the place `name` below this one. Raises Suspicious for a name that could lead elsewhere."""
        parts = PurePosixPath(name).parts
        if not parts or "\0" in name or name.startswith("/") or ".." in parts:
            raise Suspicious(errno.EINVAL, "is not a relative name, or contains ..", name)
        return Place(self.root, (*self.parts, *parts))

    @property
    def path(self) -> Path:
        """The path of the place. Do not open it directly: that would follow links."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last component."""
        return self.parts[-1]

    @property
    def parent(self) -> "Place":
        """The folder that contains this place."""
        return Place(self.root, self.parts[:-1])

    def open(self) -> BinaryIO:
        """Open the regular file for reading."""
        with self._parent() as folder:
            return open_regular(self.name, folder)

    def read(self, most: int) -> bytes:
        """Read the whole file. Raises Suspicious if it has more than `most` bytes."""
        with self.open() as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise Suspicious(errno.EFBIG, f"has more than {most} bytes", str(self.path))
        return content

    def open_folder(self) -> int:
        """Open the folder and return its descriptor."""
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

    @contextmanager
    def opened_folder(self) -> Iterator[int]:
        """Yield a descriptor of the folder, and close it afterwards."""
        descriptor = self.open_folder()
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def is_there(self) -> bool:
        """Return whether anything with this name exists."""
        try:
            with self._parent() as folder:
                os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, Suspicious):
            return False
        return True

    def is_folder(self) -> bool:
        """Return whether a folder with this name exists."""
        try:
            if not self.parts:
                return self.root.is_dir()
            with self._parent() as folder:
                return stat.S_ISDIR(os.stat(self.name, dir_fd=folder, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError, Suspicious):
            return False

    def names(self, most: int) -> list[str]:
        """Return the sorted names in the folder; if there are more than `most`, any `most` of them."""
        folder = self.open_folder()
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in islice(entries, most))
        finally:
            os.close(folder)

    def files(self, most: int) -> list[tuple[str, int]]:
        """Return the paths and sizes in bytes of the regular files in the folder and below, sorted.

        At most `most` entries are read, down to a depth of 64 folders.
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
                    continue  # the folder was removed or replaced after it was listed
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
        """Create the folder if it does not exist; with `parents`, also its parents below the root."""
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
        """Create a file that only its owner can read, and open it for writing. Raises FileExistsError."""
        with self._parent() as folder:
            return os.fdopen(_open_file(self.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder), "wb")

    def append(self) -> int:
        """Open a file for appending, and return its descriptor. The file is created if needed."""
        with self._parent() as folder:
            return _open_file(self.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, folder)

    def publish(self, content: bytes, *, anew: bool = False) -> None:
        """Write the file atomically and durably. With `anew`, raise FileExistsError if the file exists."""
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
        """Rename the file or folder to `target` durably.

        If `replace` is false, the file keeps its old name, and `target` becomes a second name. This is not
        possible for folders, and FileExistsError is raised if the target exists.
        """
        with self._parent() as source, target._parent() as goal:
            if replace:
                os.rename(self.name, target.name, src_dir_fd=source, dst_dir_fd=goal)
            else:
                os.link(self.name, target.name, src_dir_fd=source, dst_dir_fd=goal, follow_symlinks=False)
            os.fsync(goal)

    def open_to_owner(self) -> None:
        """Give the owner all rights to the folder: a job of the same user may have removed them."""
        with self._parent() as folder:
            _open_to_owner(self.name, folder)

    def unlink(self) -> None:
        """Remove the file, if it exists. If it is a link, the link itself is removed."""
        with suppress(FileNotFoundError), self._parent() as folder:
            os.unlink(self.name, dir_fd=folder)

    def remove(self) -> None:
        """Remove the folder with its content, or the file, if it exists.

        Three descriptors suffice for any depth, since folders below the first level are moved into the top
        folder before they are emptied.
        """
        try:
            with suppress(PermissionError):  # another user owns it
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
    """Return the place of a path whose parent folder is trusted."""
    return Place(path.parent, (path.name,))


def open_regular(name: str, folder: int) -> BinaryIO:
    """Open a regular file in an open folder for reading. Raises the same errors as the methods of Place."""
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
        # The file is a link, a folder, a socket or a pipe without a reader, or a component of the path is not
        # a folder.
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR):
            raise Suspicious(error.errno, "is not what the service put there", name) from error
        raise


def _open_to_owner(name: str, folder: int) -> None:
    """Give the owner all rights to the folder `name`. `folder` is the descriptor of the folder above it."""
    # O_PATH needs no rights to the folder itself. chmod on the name would follow links.
    descriptor = _open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{descriptor}").chmod(mode | stat.S_IRWXU)
    finally:
        os.close(descriptor)


def _entries(folder: int, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and status of at most `most` entries of an open folder, then close the folder."""
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(most), entries, strict=False):
                with suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(folder)


def _empty(top: int) -> None:
    """Remove the content of an open folder.

    If an entry cannot be removed, the other entries of the same batch (_AT_ONCE entries) are still removed.
    Then the first OSError is raised.
    """

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
    """Call `take` with every entry of an open folder until the folder is empty.

    Entries are read in batches. After a batch with errors, the first OSError of the batch is raised. An entry
    that no longer exists is no error.
    """
    while inside := _some(folder):
        failure: OSError | None = None
        for name, is_folder in inside:
            try:
                take(folder, name, is_folder)
            except FileNotFoundError:
                continue  # removed by something else
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _some(folder: int) -> list[tuple[str, bool]]:
    """Return the first _AT_ONCE entries of an open folder: the name, and whether the entry is a folder."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]
