"""The health of the storage of models, checkpoints and logs: whether it answers, and its free space."""

import shutil
import time
from dataclasses import dataclass
from typing import Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from job_tracker.domain.errors import StorageUnavailable
from job_tracker.files.remote import patiently

_PATIENCE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageHealth:
    """The state of a storage."""

    place: str
    """An fsspec URI, or a folder."""
    problem: str = ""
    """The reason why the storage cannot be used, or a note that its folder is missing; empty: it answers."""
    seconds: float = 0.0
    """The time that the storage took to answer, in seconds."""
    free: int | None = None
    """The free bytes; None: not known."""
    size: int | None = None
    """The bytes of the whole file system; None: not known."""


async def storage_health(root: str) -> StorageHealth:
    """Return the state of a storage. If it does not answer, `problem` says so; no error is raised."""
    began = time.monotonic()

    def look() -> StorageHealth:
        filesystem, path = fsspec.core.url_to_fs(root)
        filesystem.invalidate_cache()
        if not isinstance(filesystem, LocalFileSystem):
            # This raises an error if the storage does not answer. Otherwise, the result does not matter: in
            # an empty bucket, the path does not exist.
            filesystem.exists(path)
            return StorageHealth(place=root, seconds=time.monotonic() - began)
        if not filesystem.isdir(path):
            return StorageHealth(
                place=root, problem="The folder does not exist yet; the first job creates it."
            )
        disk = shutil.disk_usage(path)
        return StorageHealth(place=root, seconds=time.monotonic() - began, free=disk.free, size=disk.total)

    try:
        return await patiently(look, f"storage {root}", seconds=_PATIENCE_SECONDS)
    except StorageUnavailable as error:
        return StorageHealth(place=root, problem=str(error))
