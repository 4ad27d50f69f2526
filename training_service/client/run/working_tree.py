"""Reads the files of a folder that are sent to the service: their names, sizes and SHA-256.

proto/program_service.proto describes the manifest and the name of the tree, which is made from the manifest.
"""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from training_service.client.errors import InvalidRequest
from training_service.client.run.ignoring import Ignored
from training_service.client.run.opening import open_content

MAX_BYTES = 1 << 30
"""The most bytes of a program's files, by default. The service has the same default."""
MAX_FILES = 10_000
_NAMED = 5
_REMEDY = "exclude files with .gitignore, or choose a folder with less in it"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that is sent."""

    path: str
    """The path relative to the folder, with `/` between names."""
    place: Path
    is_executable: bool
    size: int
    sha256: str


@dataclass(frozen=True)
class WorkingTree:
    """The files of a folder at the moment when they were read."""

    folder: Path
    files: Sequence[LocalFile]
    """The files, ordered by the bytes of their paths."""

    @cached_property
    def manifest(self) -> bytes:
        """The text that lists the files."""
        return b"".join(
            f"{755 if file.is_executable else 644} {file.size} {file.sha256} {file.path}\n".encode()
            for file in self.files
        )

    @cached_property
    def name(self) -> str:
        """The name of the tree."""
        return hashlib.sha256(self.manifest).hexdigest()

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    @cached_property
    def by_content(self) -> dict[str, LocalFile]:
        """One file for each distinct content, by the content's SHA-256."""
        return {file.sha256: file for file in self.files}

    def changed(self) -> list[str]:
        """Return the paths of the files that have changed since they were read."""
        return [file.path for file in self.files if _has_changed(file)]


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    place: Path
    size: int
    mode: int


def read_folder(
    folder: str | os.PathLike[str] = ".", *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES
) -> WorkingTree:
    """Read the files of a folder, without files that git ignores, `.git`, `__pycache__` and virtual
    environments.

    A symbolic link to a file in the folder is read as this file. Raises InvalidRequest for other links, for
    pipes and devices, for files that cannot be read or have unusable names, and if there are no files, more
    than `max_files` files or more than `max_bytes` bytes. The limits are checked before any file is read.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise InvalidRequest(f"folder: {os.fspath(folder)!r} is not a folder")
    found: list[_Found] = []
    for file in _walk(root):
        found.append(file)
        if len(found) > max_files:
            raise InvalidRequest(
                f"{root} has more than {max_files} files; {_REMEDY}, or allow more with --max-files "
                f"(max_files of read_folder in Python). The most are in {_fullest(found)}"
            )
    if not found:
        raise InvalidRequest(f"{root} has no files to send")
    total = sum(file.size for file in found)
    if total > max_bytes:
        largest = sorted(found, key=lambda file: -file.size)[:_NAMED]
        named = ", ".join(f"{file.path} ({_in_words(file.size)})" for file in largest)
        raise InvalidRequest(
            f"the files of {root} have {_in_words(total)}, {_in_words(total - max_bytes)} more than the "
            f"{_in_words(max_bytes)} that are allowed; {_REMEDY}, or allow more with --max-size "
            f"(max_bytes of read_folder in Python). The largest are {named}"
        )
    return WorkingTree(root, [_read(file) for file in sorted(found, key=lambda file: os.fsencode(file.path))])


def read_file(path: str, place: Path) -> LocalFile:
    """Read the file `place`, which is sent under the path `path`, and never as an executable file.

    Raises InvalidRequest if its content cannot be read.
    """
    status = place.stat()
    return _read(_Found(path, place, status.st_size, status.st_mode & ~stat.S_IXUSR))


def _walk(root: Path) -> Iterator[_Found]:
    ignored = Ignored(root)
    folders = [root]
    while folders:
        inside = folders.pop()
        try:
            with os.scandir(inside) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise InvalidRequest(f"{inside} cannot be read: {error.strerror}") from None
        for entry in names:
            place = inside / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if ignored.ignores(place, is_folder=is_folder):
                continue
            if is_folder:
                folders.append(place)
            else:
                yield _file(root, place)


def _file(root: Path, place: Path) -> _Found:
    path = place.relative_to(root).as_posix()
    try:
        path.encode()
        if "\n" in path:  # the name would be two lines of the manifest
            raise InvalidRequest(f"the name of {path!r} has a line break; rename the file")
        if place.is_symlink() and not place.resolve(strict=True).is_relative_to(root):
            raise InvalidRequest(
                f"{path} is a link to {place.resolve()}, which is not in {root}; leave it out with "
                ".gitignore, or replace it with the file"
            )
        status = place.stat()
    except UnicodeEncodeError:
        raise InvalidRequest(f"the name of {path!r} is not UTF-8; rename the file") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: the links form a circle
        raise InvalidRequest(f"{path} cannot be read: {error}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a link to a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InvalidRequest(f"{path} is {kind}, which cannot be sent; leave it out with .gitignore")
    return _Found(path, place, status.st_size, status.st_mode)


def _read(file: _Found) -> LocalFile:
    try:
        sha256, size = _sha256_of(file.place)
    except OSError as error:
        raise InvalidRequest(f"{file.path} cannot be read: {error.strerror}") from None
    return LocalFile(file.path, file.place, bool(file.mode & stat.S_IXUSR), size, sha256)


def _has_changed(file: LocalFile) -> bool:
    try:
        return _sha256_of(file.place) != (file.sha256, file.size)
    except OSError:
        return True


def _sha256_of(place: Path) -> tuple[str, int]:
    with open_content(place) as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _fullest(found: Sequence[_Found]) -> str:
    counts = Counter(file.path.rpartition("/")[0] or "." for file in found)
    return ", ".join(f"{folder} ({count})" for folder, count in counts.most_common(_NAMED))


def _in_words(size: int) -> str:
    """Return a number of bytes in words, with at most three digits: 9 bytes, 31.5 MB, 1.07 GB."""
    amount, units = float(size), ("bytes", "kB", "MB", "GB", "TB")
    for unit in units:
        if amount < 999.5 or unit == units[-1]:
            break
        amount /= 1000
    return "1 byte" if size == 1 else f"{amount:.3g} {unit}"
