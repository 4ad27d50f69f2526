"""Names of artifacts that are too long for the storage are not found, so clients do not retry. Names that
ModelFiles refuses are not listed as fetchable.
"""

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from job_tracker.domain.errors import UnknownReference
from job_tracker.domain.job import Job, new_job
from job_tracker.domain.telemetry import Artifact
from job_tracker.files.artifacts import ModelFile, ModelFiles, merged
from tests.support.jobs import spec

LONGEST_KEY = 1024


class Bucket(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Refuses long keys as S3 does with s3fs: the answer to HEAD has no body with a reason."""

    protocol = "bucket"
    store: ClassVar[dict[str, Any]] = {}

    def _open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if len(path.lstrip("/").partition("/")[2].encode()) > LONGEST_KEY:
            raise OSError(errno.EINVAL, "Bad Request")
        return super()._open(path, *args, **kwargs)


@pytest.fixture(params=["local", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
        return
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    yield "bucket://training"
    Bucket.store.clear()


def job_in(root: str) -> Job:
    return new_job(1, spec(model_root=f"{root}/models/m"), datetime.now(UTC))


async def content(root: str, name: str) -> bytes:
    return b"".join([piece async for piece in ModelFiles(root).read(job_in(root), name)])


@pytest.mark.parametrize(
    "name", ["x" * 256, "x" * 5000, "é" * 1500, "日" * 3000, "d/" * 3000 + "x", "d/" * 20 + "x" * 1000]
)
async def test_a_name_that_is_too_long_is_not_found_and_quoted_shortened(root: str, name: str) -> None:
    job = job_in(root)
    with fsspec.open(f"{job.model_uri}/d/model.pt", "wb", auto_mkdir=True) as file:
        file.write(b"weights")
    assert await content(root, "d/model.pt") == b"weights"
    with pytest.raises(UnknownReference) as refused:
        await content(root, name)
    message = str(refused.value)
    assert message.startswith(f"name: {name[:57]!r}"[:-1])
    assert len(message) < 400, message


def test_a_file_whose_name_cannot_be_fetched_is_listed_without_the_flag() -> None:
    files = [ModelFile("a/model.pt", "file:///a/model.pt", 7), ModelFile("bell\a", "file:///bell", 1)]
    reported = [Artifact(name="report", uri="https://reports/1")]
    flags = {artifact.name: is_fetchable for artifact, is_fetchable in merged(files, reported)}
    assert flags == {"a/model.pt": True, "bell\a": False, "report": False}


def test_an_artifact_that_was_reported_without_a_size_has_the_size_of_its_file() -> None:
    files = [ModelFile("model.pt", "file:///model.pt", 7), ModelFile("other.pt", "file:///other.pt", 8)]
    reported = [
        Artifact(name="model.pt", uri="/model.pt", kind="model"),
        Artifact(name="other.pt", uri="/other.pt", size=9),
    ]
    assert [(each.kind, each.size) for each, _ in merged(files, reported)] == [("model", 7), ("", 9)]
