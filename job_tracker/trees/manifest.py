"""The manifest of a tree: path, mode, size and SHA-256 of each file. It is parsed as untrusted input.

The text of a manifest is canonical, so its SHA-256 names the tree. The text is UTF-8 and has a line for each
file: `MODE SIZE SHA256 PATH`. The lines are ordered by the bytes of the path. The mode is 644 or 755, the
size has no leading zeros, and the SHA-256 is 64 lower-case hexadecimal digits. For example:

    644 11 b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9 data/greeting.txt

Folders have no lines of their own, so empty folders are not part of a tree. A manifest cannot describe links
or devices.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField

FIELD = "manifest"
"""The name of the manifest in messages."""
LONGEST_PATH = 1024
"""The largest number of bytes of a path."""
MOST_LEVELS = 32
_LONGEST_NAME = 255  # bytes, as in every common file system
_NAMED = 5
_HASH = re.compile(r"[0-9a-f]{64}")
_LINE = re.compile(rb"(644|755) (0|[1-9][0-9]{0,14}) ([0-9a-f]{64}) (.+)")


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """The limits on the size of a tree."""

    max_bytes: int = 1 << 30
    """The largest number of bytes of all files together."""
    max_files: int = 10_000

    @property
    def max_manifest(self) -> int:
        """Return the largest allowed size of a manifest in bytes.

        It suffices for `max_files` files whose paths have a usual length.
        """
        return 4096 + 256 * self.max_files


@dataclass(frozen=True, slots=True)
class File:
    """A file of a tree."""

    path: str
    """The relative path, with `/` between names."""
    is_executable: bool
    size: int
    """The number of bytes."""
    sha256: str
    """64 hexadecimal digits."""


@dataclass(frozen=True)
class Manifest:
    """A checked manifest. Files are ordered by the bytes of their paths."""

    tree: str
    """The name of the tree: the SHA-256 of the text."""
    text: bytes = field(repr=False)
    files: Sequence[File] = field(repr=False)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the sizes of the contents, by SHA-256. Equal files share their content."""
        return {file.sha256: file.size for file in self.files}


def is_tree(text: str) -> bool:
    """Return whether the text can be the name of a tree."""
    return _HASH.fullmatch(text) is not None


def parsed(text: bytes, limits: TreeLimits) -> Manifest:
    """Return the manifest with this text. Raises InvalidField if the text is not allowed."""
    if len(text) > limits.max_manifest:
        raise _refused(
            f"it has {len(text)} bytes; at most {limits.max_manifest} are allowed. Send fewer files"
        )
    if not text.endswith(b"\n"):
        raise _refused("it is empty, or its last line has no line break; send at least one file")
    lines = text[:-1].split(b"\n")
    if len(lines) > limits.max_files:
        raise _refused(
            f"the tree has {len(lines)} files; at most {limits.max_files} are allowed (programs.max_files). "
            "Leave some out with .gitignore"
        )
    files = [_file(line, number) for number, line in enumerate(lines, start=1)]
    _check_order(files)
    _check_names(files)
    _check_sizes(files, limits)
    return Manifest(hashlib.sha256(text).hexdigest(), text, files)


def _file(line: bytes, number: int) -> File:
    found = _LINE.fullmatch(line)
    if found is None:
        raise _refused(
            f"line {number}, {_shown(line)}, is not allowed: use `MODE SIZE SHA256 PATH`; MODE is 644 or 755"
        )
    mode, size, sha256, path = found.groups()
    try:
        text = path.decode()
    except UnicodeDecodeError:
        raise _refused(f"line {number}: the path {_shown(path)} is not UTF-8; rename the file") from None
    return File(text, mode == b"755", int(size), sha256.decode())


def _check_order(files: Sequence[File]) -> None:
    for before, after in pairwise(files):
        if before.path.encode() >= after.path.encode():
            raise _refused(
                f"{quoted(after.path)} follows {quoted(before.path)}; list each path once, ordered by bytes"
            )


def _check_names(files: Iterable[File]) -> None:
    """Check each path, and check that no two paths conflict."""
    folders: set[str] = set()
    folded: dict[str, str] = {}
    for file in files:
        _check_path(file.path)
        for folder in _folders_of(file.path):
            if folder in folders:
                break  # the folders above this one were added with it
            folders.add(folder)
            _check_distinct(folder, folded)
        _check_distinct(file.path, folded)
    for file in files:
        if file.path in folders:
            raise _refused(f"{quoted(file.path)} is a file and a folder; rename one of them")


def _check_path(path: str) -> None:
    def refuse(problem: str) -> InvalidField:
        return _refused(f"the path {quoted(path)} is not allowed: {problem}")

    if len(path.encode()) > LONGEST_PATH:
        raise refuse(f"it has {len(path.encode())} bytes; at most {LONGEST_PATH} are allowed")
    if not path.isprintable():
        raise refuse("it has a control character or an invisible one; rename the file")
    names = path.split("/")
    if len(names) > MOST_LEVELS:
        raise refuse(f"it has {len(names)} levels; at most {MOST_LEVELS} are allowed")
    for name in names:
        if name in ("", ".", ".."):
            raise refuse("paths are relative, and have no empty name and no . or .. in them")
        if len(name.encode()) > _LONGEST_NAME:
            raise refuse(f"a name in it has {len(name.encode())} bytes; at most {_LONGEST_NAME} are allowed")


def _check_distinct(path: str, folded: dict[str, str]) -> None:
    """Raise InvalidField if an earlier path differs from this one only in case or Unicode normal form."""
    key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
    other = folded.setdefault(key, path)
    if other != path:
        shown = f"{quoted(other)} and {quoted(path)}"
        if unicodedata.normalize("NFC", other) == unicodedata.normalize("NFC", path):  # they look the same
            shown = f"{other!a} and {path!a}"
        raise _refused(
            f"{shown} differ only in case or in their Unicode normal form, so "
            "they would be one file on some machines; rename one of them"
        )


def _folders_of(path: str) -> Iterator[str]:
    """Yield the folders that contain the path, the innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _check_sizes(files: Iterable[File], limits: TreeLimits) -> None:
    sizes: dict[str, int] = {}
    for file in files:
        if sizes.setdefault(file.sha256, file.size) != file.size:
            raise _refused(f"{quoted(file.path)} differs in size from a file with the same SHA-256")
    total = sum(file.size for file in files)
    if total > limits.max_bytes:
        largest = sorted(files, key=lambda file: -file.size)[:_NAMED]
        named = ", ".join(f"{quoted(file.path)} ({file.size} bytes)" for file in largest)
        raise _refused(
            f"the tree has {total} bytes; at most {limits.max_bytes} are allowed (programs.max_bytes). Leave "
            f"large files out with .gitignore; the largest are {named}"
        )


def _refused(problem: str) -> InvalidField:
    return InvalidField(FIELD, problem)


def _shown(data: bytes) -> str:
    return quoted(data[:200].decode(errors="backslashreplace"))
