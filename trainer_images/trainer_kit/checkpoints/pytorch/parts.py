"""Writes and reads the parts of a checkpoint with torch.distributed.checkpoint and fsspec.

PyTorch's own bridge to fsspec is not used, for these reasons:

* it is private;
* it runs `sync` on the whole machine for each file of an object store;
* if it fails with an exception that cannot be serialized, it tries to send this exception to the other
  processes, which then wait forever;
* it seeks back and forth in files of object stores.

This module also hashes the written files.
"""

import io
import os
import tempfile
from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from trainer_kit.checkpoints import durable
from trainer_kit.checkpoints.folder import storage_errors
from trainer_kit.checkpoints.hashed_file import HashedFile
from trainer_kit.checkpoints.manifest import Part
from trainer_kit.checkpoints.pytorch.packing import Packing, only_named_types, read_metadata
from trainer_kit.errors import DamagedError, StorageError

StrPath = str | PathLike[str]


class PartsWriter(FileSystemWriter):
    """Writes this process's parts of a checkpoint."""

    def __init__(self, filesystem: AbstractFileSystem, path: str) -> None:
        # `Parts` itself syncs files, on the file systems that need it.
        super().__init__(path, sync_files=False)
        self.path = path
        self._parts = self.fs = Parts(filesystem)  # type: ignore[assignment]  # any FileSystemBase will do

    @property
    def written(self) -> dict[str, Part]:
        """The parts that this process has written, by name."""
        return {Path(path).name: part for path, part in self._parts.written.items()}


class PartsReader(FileSystemReader):
    """Reads those parts of a verified checkpoint that this process needs."""

    def __init__(self, filesystem: AbstractFileSystem, path: str, names: Collection[str]) -> None:
        super().__init__(path)
        self.path = path
        self.fs = Parts(filesystem)  # type: ignore[assignment]  # as above
        self._names = names
        """The verified files. No other file is read."""
        self._metadata: Metadata | None = None

    def look_inside(self) -> None:
        """Read the list of tensors with their positions.

        Raises DamagedError if the list is missing, is malformed or names a file that is not verified, and
        UntrustedTypeError if it contains types that are not allowed.
        """
        name = ".metadata"
        if name not in self._names:
            raise DamagedError("its manifest names no list of tensors")
        with self.fs.create_stream(f"{self.path}/{name}", "rb") as file:
            metadata = read_metadata(cast(IO[bytes], file))
        try:
            elsewhere = {each.relative_path for each in metadata.storage_data.values()}.difference(
                self._names
            )
        except (AttributeError, TypeError) as error:
            raise DamagedError("its list of tensors is malformed") from error
        if elsewhere:
            raise DamagedError(
                f"its list of tensors names a file outside the manifest: {sorted(elsewhere)[0]}"
            )
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        self._metadata = metadata

    def read_metadata(self, *_arguments: Any, **_options: Any) -> Metadata:
        """Return the list of tensors that `look_inside` has read."""
        assert self._metadata is not None, "call look_inside first"
        return self._metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of `plan`. Raises UntrustedTypeError for types that are not allowed."""
        with only_named_types():
            return super().read_data(plan, planner)


class PlainPlanner(DefaultLoadPlanner):
    """Restores the items that were read. Objects that are not tensors are loaded by `packing`."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self._packing = packing

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Restore an object that is not a tensor."""
        *parents, name = self.mappings[read_item.dest_index.fqn]
        target: Any = self.original_state_dict
        for key in parents:
            target = target[key]
        target[name] = self._packing.unpack(value.getvalue())


class Parts(FileSystemBase):
    """An adapter from an fsspec file system to torch.distributed.checkpoint."""

    def __init__(self, filesystem: AbstractFileSystem) -> None:
        self._filesystem = filesystem
        self.written: dict[str, Part] = {}
        """The files written through this object, by path."""

    @contextmanager
    def create_stream(self, path: StrPath, mode: str) -> Generator[Any, None, None]:
        """Open a file for sequential writing ("wb") or random reading ("rb")."""
        path = os.fspath(path)
        with self._to_read(path) if mode == "rb" else self._to_write(path, mode) as stream:
            yield stream

    def concat_path(self, path: StrPath, suffix: str) -> str:
        """Return the path of a file in a folder."""
        return f"{os.fspath(path)}/{suffix}"

    def init_path(self, path: StrPath) -> str:
        """Return the path as a string."""
        return os.fspath(path)

    def rename(self, path: StrPath, new_path: StrPath) -> None:
        """Rename a written file."""
        path, new_path = os.fspath(path), os.fspath(new_path)
        with storage_errors(path):
            self._filesystem.mv(path, new_path)
        self.written[new_path] = self.written.pop(path)

    def mkdir(self, path: StrPath) -> None:
        """Create a folder, unless it exists."""
        with storage_errors(os.fspath(path)):
            self._filesystem.makedirs(os.fspath(path), exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Accept any path that is not empty."""
        return bool(os.fspath(checkpoint_id))

    def exists(self, path: StrPath) -> bool:
        """Return whether this process has written the file.

        Storage is not asked: no other run writes to the folder, and each process writes files of its own.
        """
        return os.fspath(path) in self.written

    def rm_file(self, path: StrPath) -> None:
        """Remove a file."""
        with storage_errors(os.fspath(path)):
            self._filesystem.rm_file(os.fspath(path))

    @contextmanager
    def _to_write(self, path: str, mode: str) -> Iterator[Any]:
        with storage_errors(path):
            with self._filesystem.open(path, mode) as file:
                hashed = HashedFile(file)
                yield hashed
                durable.sync_open(file)
            self.written[path] = hashed.part()

    @contextmanager
    def _to_read(self, path: str) -> Iterator[Any]:
        with ExitStack() as stack:
            with storage_errors(path):
                stream = stack.enter_context(self._seekable(path))
            try:
                yield stream
            except OSError as error:  # other errors concern the content
                raise StorageError(f"{path}: {error}") from error

    @contextmanager
    def _seekable(self, path: str) -> Iterator[IO[bytes]]:
        """Open a local file, or a local copy of a file in an object store.

        PyTorch seeks to the end of a tensor and then back to its start, which is slow in an object store.
        """
        if isinstance(self._filesystem, LocalFileSystem):
            with Path(path).open("rb") as file:
                yield file
        else:
            with tempfile.NamedTemporaryFile(prefix="checkpoint-") as copy:
                self._filesystem.get_file(path, copy.name)
                yield copy.file
