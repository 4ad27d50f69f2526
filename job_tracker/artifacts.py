"""What a job has made: the files in the folder of its model, and what it reported besides."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import fsspec

from job_tracker.errors import InvalidField, StorageUnavailable, UnknownReference
from job_tracker.model import Job
from job_tracker.storage import patiently
from job_tracker.telemetry import MOST_ARTIFACTS, Artifact

_PATIENCE_SECONDS = 20.0
_PIECE = 256 * 1024
"""Bytes that are read at once: what a download takes of memory."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file below the folder of a model; `name` is its path from there."""

    name: str
    uri: str
    size: int


async def files_of(job: Job) -> Sequence[ModelFile]:
    """The files of the job's model, by name; the first MOST_ARTIFACTS. Raises StorageUnavailable."""
    uri = job.model_uri
    return await patiently(lambda: _list(uri), f"the model at {uri}", seconds=_PATIENCE_SECONDS)


async def read(job: Job, name: str) -> AsyncIterator[bytes]:
    """The content of one of `files_of`, in pieces. Raises UnknownReference, StorageUnavailable."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or not name.isprintable():
        raise InvalidField("name", f"{name!r:.100} is not the name of an artifact")
    what = f"{job.model_uri}/{path}"
    file: Any = await patiently(lambda: _open(job.model_uri, str(path)), what, seconds=_PATIENCE_SECONDS)
    try:
        while piece := await patiently(lambda: file.read(_PIECE), what, seconds=_PATIENCE_SECONDS):
            yield piece
    finally:
        await asyncio.to_thread(file.close)


def merged(files: Sequence[ModelFile], reported: Sequence[Artifact]) -> list[tuple[Artifact, bool]]:
    """All artifacts by name, and whether `read` gives them. What was reported says more of a file."""
    told = {artifact.name: artifact for artifact in reported}
    found = {file.name: file for file in files}
    artifacts = [
        (told.get(name) or Artifact(name=name, uri=found[name].uri, size=found[name].size), name in found)
        for name in sorted(told.keys() | found.keys())
    ]
    return artifacts[:MOST_ARTIFACTS]


def _list(uri: str) -> list[ModelFile]:
    filesystem, folder = fsspec.core.url_to_fs(uri)
    filesystem.invalidate_cache()
    try:
        found = filesystem.find(folder, detail=True)
    except FileNotFoundError:
        return []
    except Exception as error:
        raise StorageUnavailable(f"the model at {uri} cannot be looked at: {error}") from error
    names = sorted(found)[:MOST_ARTIFACTS]
    relative = [path.removeprefix(folder).lstrip("/") for path in names]
    return [
        ModelFile(name, f"{uri}/{name}", int(found[path].get("size") or 0))
        for name, path in zip(relative, names, strict=True)
    ]


def _open(uri: str, name: str) -> Any:
    filesystem, folder = fsspec.core.url_to_fs(uri)
    try:
        return filesystem.open(f"{folder}/{name}", "rb")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UnknownReference("name", f"{name!r} is not a file of the model at {uri}") from error
    except Exception as error:
        raise StorageUnavailable(f"{uri}/{name} cannot be read: {error}") from error
