"""Artifacts of jobs: the files in the folders of their models, merged with reported artifacts."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import BinaryIO

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField, StorageUnavailable, UnknownReference
from job_tracker.domain.job import Job
from job_tracker.domain.telemetry import MAX_ARTIFACTS, Artifact
from job_tracker.files.job_files import JobFiles, job_files
from job_tracker.files.remote import patiently
from job_tracker.files.untrusted import Suspicious

_PATIENCE_SECONDS = 20.0
_PROMPT_SECONDS = 5.0  # short, since the end of a job waits for the answer
_PIECE = 256 * 1024  # bytes in memory for each download
_MOST_LOOKED_AT = 10 * MAX_ARTIFACTS  # entries of a folder: training may leave millions there


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file below the folder of a model; `name` is its path in this folder."""

    name: str
    uri: str
    size: int


class ModelFiles:
    """The files of models, in folders below the root of the storage."""

    def __init__(self, storage_root: str) -> None:
        """`storage_root` is an fsspec URI."""
        self._root = storage_root

    async def list(self, job: Job) -> Sequence[ModelFile]:
        """Return the files of the job's model, sorted by name, at most MAX_ARTIFACTS of them.

        Raises StorageUnavailable.
        """
        uri = job.model_uri

        def look() -> Sequence[ModelFile]:
            found = job_files(uri, within=self._root).files(_MOST_LOOKED_AT)
            return [ModelFile(name, f"{uri}/{name}", size) for name, size in found[:MAX_ARTIFACTS]]

        return await patiently(look, f"the model at {uri}", seconds=_PATIENCE_SECONDS)

    async def has_any(self, job: Job) -> bool | None:
        """Return whether the job's model has a file; None if the storage fails or does not answer soon."""
        uri = job.model_uri

        def look() -> bool:
            return bool(job_files(uri, within=self._root).files(_MOST_LOOKED_AT))

        try:
            return await patiently(look, f"the model at {uri}", seconds=_PROMPT_SECONDS)
        except StorageUnavailable:
            return None

    async def read(self, job: Job, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file of the model, in pieces.

        Raises InvalidField if the name is not safe, UnknownReference if there is no such file, and
        StorageUnavailable.
        """
        if not _is_fetchable(name):
            raise InvalidField(
                "name",
                f"{quoted(name)} is not the name of an artifact; send a name that GetTrainingArtifacts lists "
                "as fetchable",
            )
        uri = job.model_uri
        what = f"{quoted(name)} of the model at {uri}"
        file = await patiently(
            lambda: _open(job_files(uri, within=self._root), uri, str(PurePosixPath(name))),
            what,
            seconds=_PATIENCE_SECONDS,
            dispose=lambda file: file.close(),
        )
        try:
            while piece := await patiently(lambda: file.read(_PIECE), what, seconds=_PATIENCE_SECONDS):
                yield piece
        finally:
            await asyncio.to_thread(file.close)


def merged(files: Sequence[ModelFile], reported: Sequence[Artifact]) -> list[tuple[Artifact, bool]]:
    """Return at most MAX_ARTIFACTS artifacts, sorted by name.

    Each artifact has a flag, which says whether it is a stored file that ModelFiles.read accepts.

    A reported artifact replaces a file of the same name. If no size was reported, the size is that of the
    file.
    """
    by_name = {artifact.name: artifact for artifact in reported}
    found = {file.name: file for file in files}
    return [
        (_artifact_of(found.get(name), by_name.get(name)), name in found and _is_fetchable(name))
        for name in sorted(by_name.keys() | found.keys())[:MAX_ARTIFACTS]
    ]


def _artifact_of(file: ModelFile | None, reported: Artifact | None) -> Artifact:
    if file is None:
        assert reported is not None
        return reported
    if reported is None:
        return Artifact(name=file.name, uri=file.uri, size=file.size)
    return reported if reported.size else replace(reported, size=file.size)


def _is_fetchable(name: str) -> bool:
    """Return whether the name is safe: it is printable, and cannot lead out of the folder of the model."""
    path = PurePosixPath(name)
    return name != "" and name.isprintable() and not path.is_absolute() and ".." not in path.parts


def _open(files: JobFiles, uri: str, name: str) -> BinaryIO:
    try:
        return files.open(name)
    except (FileNotFoundError, IsADirectoryError, Suspicious) as error:
        raise UnknownReference("name", f"{quoted(name)} is not a file of the model at {uri}") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UnknownReference(
                "name",
                f"{quoted(name)} is too long for the name of a file ({len(name.encode())} bytes)",
            ) from error
        raise
