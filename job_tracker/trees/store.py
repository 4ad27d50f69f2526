"""Trees on disk, by project: a project cannot learn which files another project has.

PROJECT/trees/<tree>             the manifest; its modification time is the time of its last use
PROJECT/blobs/<SHA-256>          the content of a file, complete and synced to disk
PROJECT/incoming/<SHA-256>       the bytes of a file that have been uploaded so far; see uploads.py
PROJECT/lock                     held exclusively while unused trees are removed, otherwise shared

A tree is complete when all its contents are in `blobs`. Methods access the disk: call them in a thread. With
the process backend, jobs run as the user of the service and can write these files. So contents are checked
again when they are read.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from job_tracker.common.local_faults import remedy_of
from job_tracker.domain.errors import (
    InvalidField,
    LimitExceeded,
    StorageUnavailable,
    TreeDamaged,
    UnknownReference,
)
from job_tracker.files.untrusted import Place
from job_tracker.trees.contents import TreeContents, archived, in_one_stream
from job_tracker.trees.manifest import FIELD, Manifest, TreeLimits, is_tree, parsed

_MANY = 1_000_000
_DISK = "storage.data_dir"
_ANY_TREE = TreeLimits(max_bytes=1 << 60, max_files=_MANY)
"""The limits for trees that are already stored: the configured limits may have become lower since the trees
were accepted."""
_PARTIAL_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Missing:
    """The content of a file that a tree still needs."""

    sha256: str
    size: int
    received: int
    """The number of bytes that have arrived. The upload continues after them."""


@dataclass(frozen=True, slots=True)
class TreeStatus:
    """The parts of a tree that the service has."""

    tree: str
    is_known: bool
    """Whether the manifest is stored."""
    missing: tuple[Missing, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether a job can use the tree."""
        return self.is_known and not self.missing


class TreeStore:
    """The trees of all projects below one folder."""

    def __init__(
        self, root: Path, limits: TreeLimits | None = None, *, max_stored_bytes: int = 20 << 30
    ) -> None:
        """`max_stored_bytes` bounds the total size of the contents and manifests of each project."""
        self.limits = limits or TreeLimits()
        self._root = root
        self._max_stored = max_stored_bytes

    def of(self, project: str) -> "ProjectTrees":
        """Return the trees of a project, which may have none."""
        return ProjectTrees(self._root, project, self.limits, self._max_stored)

    def projects(self) -> list[str]:
        """List the projects that have trees, or had trees earlier."""
        try:
            return Place(self._root).names(_MANY)
        except FileNotFoundError:
            return []


class ProjectTrees:
    """The trees of one project."""

    def __init__(self, root: Path, project: str, limits: TreeLimits, max_stored: int) -> None:
        self._root = root
        self._project = project
        self._limits = limits
        self._max_stored = max_stored
        self._place = Place(root, (project,))
        self._trees = self._place / "trees"
        self.blobs = self._place / "blobs"
        """The complete contents."""
        self.incoming = self._place / "incoming"
        """The incomplete contents."""

    def find(self, tree: str) -> TreeStatus:
        """Return which parts of a tree are stored.

        If its manifest is stored, the call counts as a use of the tree. Raises InvalidField if `tree` cannot
        be the name of a tree.
        """
        with self._access(), self._locked():
            return self._found(tree)

    def put(self, tree: str, text: bytes) -> TreeStatus:
        """Store the manifest of a tree, and return which contents are missing. May be repeated.

        Raises InvalidField if the manifest is not allowed or belongs to another tree, and LimitExceeded if
        there is no room for the missing contents.
        """
        manifest = parsed(text, self._limits)
        if manifest.tree != tree:
            raise InvalidField(
                FIELD, f"its SHA-256 is {manifest.tree}, and not the tree's name; send it again"
            )
        with self._access():
            self._make_folders()
            with self._locked():
                self._check_sizes(manifest)
                missing = self._missing(manifest)
                is_new = not (self._trees / tree).is_there()
                self._check_room(missing, len(text) if is_new else 0)
                (self._trees / tree).publish(text)
                return TreeStatus(tree, is_known=True, missing=missing)

    def require(self, tree: str) -> None:
        """Record that a job uses the tree now. Raises UnknownReference if the tree is not complete."""
        status = self.find(tree)
        if status.is_complete:
            return
        state = "is not complete" if status.is_known else "doesn't exist"
        raise UnknownReference(
            "program.tree",
            f"{tree} {state} in project {self._project}; upload its files first, as `trainctl run` does",
        )

    def manifest(self, tree: str) -> Manifest:
        """Read a manifest. Raises UnknownReference if it is not stored.

        If the stored manifest was changed, remove it, so that it can be sent again, and raise TreeDamaged.
        """
        try:
            with self._access():
                text = (self._trees / tree).read(_ANY_TREE.max_manifest)
        except FileNotFoundError:
            raise UnknownReference(
                "tree", f"{tree} doesn't exist in project {self._project}; send its manifest first"
            ) from None
        if hashlib.sha256(text).hexdigest() != tree:
            with suppress(OSError):
                (self._trees / tree).unlink()
            raise TreeDamaged(f"the manifest of tree {tree} was changed on the service's disk")
        return parsed(text, _ANY_TREE)

    def unpack(self, tree: str, target: Place) -> None:
        """Write the files of a tree into a new folder, which the caller removes if this fails.

        Raises TreeDamaged if content is missing or has been changed, and OSError. If the disk has no room
        for all files, this raises OSError at once.
        """
        target.make_folder(parents=False)
        with self.reading(tree) as contents:
            contents.check_room(target.path)
            made = {""}
            for file in contents.manifest.files:
                folder = file.path.rpartition("/")[0]
                if folder not in made:
                    (target / folder).make_folder()
                    made.add(folder)
                with (target / file.path).create() as copy:
                    if file.is_executable:
                        os.fchmod(copy.fileno(), 0o700)
                    for piece in contents.of(file):
                        copy.write(piece)

    @contextmanager
    def reading(self, tree: str) -> Iterator[TreeContents]:
        """Open a tree to read its files. Raises TreeDamaged if its manifest is missing or was changed."""
        try:
            manifest = self.manifest(tree)
            blobs = self.blobs.open_folder()
        except (UnknownReference, FileNotFoundError) as error:
            raise TreeDamaged(f"the manifest of tree {tree} is gone") from error
        try:
            yield TreeContents(manifest, blobs)
        finally:
            os.close(blobs)

    def archive(self, tree: str, folder: str, shared: Sequence[str] = ()) -> Generator[bytes, None, None]:
        """Yield a tar archive of the tree (contents.archived). Raises TreeDamaged and OSError."""
        with self.reading(tree) as contents:
            yield from archived(contents, folder, shared)

    def only_file(self, tree: str, check: Callable[[Manifest], None]) -> Generator[bytes, None, None]:
        """Yield the content of the only file of a tree.

        `check` must raise an error for a tree that does not have exactly one file. Raises TreeDamaged and
        OSError.
        """
        with self.reading(tree) as contents:
            check(contents.manifest)
            yield from contents.of(contents.manifest.files[0])

    def stream(self, tree: str, *, manifest_only: bool = False) -> Generator[bytes, None, None]:
        """Yield the tree as one stream: see in_one_stream. Raises TreeDamaged and OSError."""
        with self.reading(tree) as contents:
            yield from in_one_stream(contents, manifest_only=manifest_only)

    def unused_since(self, before: float) -> list[str]:
        """List the trees that were last used before this time, in seconds since 1970."""
        with self._access():
            return [name for name, used_at in self._uses() if used_at < before]

    def touch(self, trees: Iterable[str]) -> None:
        """Record that these trees are used now. Trees that are not stored are ignored."""
        with self._access(), self._locked():
            for tree in trees:
                self._touch(tree)

    def remove_unused(self, before: float, used: Collection[str]) -> list[str]:
        """Remove, and return, the trees that were last used before this time, except for `used`.

        Contents that no tree needs any longer, and the files of uploads that were not continued for a day,
        are removed, too. May be repeated after a crash, since a tree is removed before its contents.
        """
        with self._access(), self._locked(exclusive=True):
            removed = [tree for tree, used_at in self._uses() if used_at < before and tree not in used]
            for tree in removed:
                (self._trees / tree).unlink()
            needed: set[str] = set()
            for tree, _ in self._uses():
                with suppress(TreeDamaged):  # no job can use a damaged tree any longer
                    needed.update(self.manifest(tree).sizes)
            for name in _names(self.blobs):
                if name not in needed:
                    (self.blobs / name).unlink()
            for name, modified_at in _times(self.incoming):
                if modified_at < time.time() - _PARTIAL_SECONDS:
                    self._remove_partial(name)
            return removed

    def _remove_partial(self, name: str) -> None:
        """Remove the file of an unfinished upload, unless another upload is continuing it."""
        with (self.incoming / name).open() as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.incoming / name).unlink()

    def _found(self, tree: str) -> TreeStatus:
        if not is_tree(tree):
            raise InvalidField(
                "tree", "it must be 64 lower-case hexadecimal digits, the SHA-256 of a manifest"
            )
        if not self._touch(tree):
            return TreeStatus(tree, is_known=False)
        try:
            manifest = self.manifest(tree)
        except (UnknownReference, TreeDamaged):
            return TreeStatus(tree, is_known=False)
        return TreeStatus(tree, is_known=True, missing=self._missing(manifest))

    def _touch(self, tree: str) -> bool:
        try:
            with (self._trees / tree).open() as file:
                os.utime(file.fileno())
        except FileNotFoundError:
            return False
        return True

    def _missing(self, manifest: Manifest) -> tuple[Missing, ...]:
        with self.blobs.opened_folder() as blobs, self.incoming.opened_folder() as incoming:
            return tuple(
                Missing(sha256, size, min(size, _size(incoming, sha256) or 0))
                for sha256, size in manifest.sizes.items()
                # Stored content of another size is not the content that the manifest names.
                if _size(blobs, sha256) != size
            )

    def _check_sizes(self, manifest: Manifest) -> None:
        """Raise InvalidField if the size of stored content differs from the size in the manifest."""
        with self.blobs.opened_folder() as blobs:
            for sha256, size in manifest.sizes.items():
                if _size(blobs, sha256) not in (None, size):
                    raise InvalidField(
                        FIELD, f"the content {sha256} does not have {size} bytes; correct its size"
                    )

    def check_room(self, missing: Iterable[Missing]) -> None:
        """Raise LimitExceeded if there is no room for the contents.

        An upload also begins with this check, since other trees may have been stored after the manifest was
        accepted.
        """
        with self._access():
            self._check_room(missing)

    def _check_room(self, missing: Iterable[Missing], of_manifest: int = 0) -> None:
        wanted = of_manifest + sum(each.size - each.received for each in missing)
        if not wanted:
            return
        places = (self._trees, self.blobs, self.incoming)
        stored = sum(size for place in places for _, size in place.files(_MANY))
        if stored + wanted > self._max_stored:
            raise LimitExceeded(
                f"project {self._project}: its uploaded files have {stored} bytes, and this tree needs "
                f"{wanted} more; at most {self._max_stored} are allowed (programs.max_stored_bytes). Send "
                "fewer files, or wait until unused ones are removed (programs.keep_unused)",
                limit="programs.max_stored_bytes",
            )
        if wanted > (free := shutil.disk_usage(self._root).free):
            raise LimitExceeded(
                f"the tree needs {wanted} bytes, and the service's disk has {free} left; free some space in "
                "its storage.data_dir",
                limit=_DISK,
            )

    def _make_folders(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for place in (self._trees, self.blobs, self.incoming):
            place.make_folder()

    def _uses(self) -> list[tuple[str, float]]:
        """List the trees with the time of their last use."""
        return [(name, used_at) for name, used_at in _times(self._trees) if is_tree(name)]

    @contextmanager
    def _locked(self, *, exclusive: bool = False) -> Iterator[None]:
        """Lock the trees: `exclusive` for a removal, shared otherwise. Other processes use the same lock."""
        try:
            lock = (self._place / "lock").append()
        except FileNotFoundError:  # the project has no trees yet
            yield
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _access(self) -> Iterator[None]:
        with explained_faults(self._place.path):
            yield


@contextmanager
def explained_faults(path: Path) -> Iterator[None]:
    """Turn the error of a full disk into LimitExceeded, and other OSErrors into StorageUnavailable.

    A FileNotFoundError stays as it is. The message of LimitExceeded names `path`.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LimitExceeded(
                f"uploaded files cannot be kept: {remedy_of(error)} ({path})", limit=_DISK
            ) from error
        raise StorageUnavailable(f"uploaded files cannot be accessed: {error}") from error


def _size(folder: int, name: str) -> int | None:
    """Return the size of a regular file in an open folder; None if there is no such file."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _names(place: Place) -> list[str]:
    try:
        return place.names(_MANY)
    except FileNotFoundError:
        return []


def _times(place: Place) -> list[tuple[str, float]]:
    """List the names in a folder with the times of their last change."""
    try:
        folder = place.open_folder()
    except FileNotFoundError:
        return []
    try:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_mtime))
        return sorted(found)
    finally:
        os.close(folder)
