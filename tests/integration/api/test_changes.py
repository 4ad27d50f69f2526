"""The uncommitted changes of programs: uploaded, recorded with jobs and read, on a real server."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from job_tracker.trees.changes import FILE
from tests.support.access import failure
from tests.support.api_service import Service
from tests.support.patience import PATIENCE
from tests.support.uploader import TREE, Uploader
from training_service._generated import training_service_pb2 as pb
from training_service.client import AsyncTrainingClient
from training_service.client.errors import NotFound
from training_service.client.run import repository

TEXT = b"# Changes since commit 1\n" + b"+line\n" * 30_000


@pytest.fixture
async def uploader(untracked: Service) -> Uploader:
    return Uploader(untracked)


async def recorded(service: Service, job_id: int) -> bytes:
    call = service.stub.GetTrainingChanges(pb.GetTrainingChangesRequest(job_id=job_id))
    return b"".join([piece.content async for piece in call])


async def test_changes_are_recorded_with_a_job_and_read_in_pieces(uploader: Uploader) -> None:
    await uploader.whole()
    changes = pb.ProgramChanges(tree=await uploader.whole({FILE: TEXT}), added=30_000)
    job = (await uploader.run(changes=changes)).job_id
    assert await recorded(uploader.service, job) == TEXT
    made = await uploader.service.stub.GetTrainingArtifacts(pb.GetTrainingArtifactsRequest(job_id=job))
    assert made.provenance.request.program.changes == changes
    again = await uploader.service.stub.Train(made.provenance.request)
    assert await recorded(uploader.service, again.job_id) == TEXT


async def test_a_job_without_changes_has_none_to_read(uploader: Uploader) -> None:
    await uploader.whole()
    job = (await uploader.run()).job_id
    code, details = await failure(recorded(uploader.service, job))
    assert (code, details) == (
        grpc.StatusCode.NOT_FOUND,
        f"job_id: job {job} has no uncommitted changes recorded",
    )


async def test_a_job_whose_changes_were_removed_runs_and_says_so(uploader: Uploader) -> None:
    await uploader.whole()
    job = (await uploader.run(changes=pb.ProgramChanges(tree="a" * 64, added=1))).job_id
    code, details = await failure(recorded(uploader.service, job))
    assert code == grpc.StatusCode.NOT_FOUND
    assert "no longer kept (programs.keep_unused)" in details


@pytest.mark.parametrize("tree", ["", "../x", "A" * 64])
async def test_what_is_not_a_tree_is_refused(uploader: Uploader, tree: str) -> None:
    await uploader.whole()
    code, details = await failure(uploader.run(changes=pb.ProgramChanges(tree=tree)))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("program.changes.tree: ")


async def test_a_tree_of_another_kind_is_refused_as_changes(uploader: Uploader) -> None:
    await uploader.whole()
    code, details = await failure(uploader.run(changes=pb.ProgramChanges(tree=TREE)))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"whose only file is {FILE}" in details


@pytest.fixture
async def client(untracked: Service) -> AsyncIterator[AsyncTrainingClient]:
    async with AsyncTrainingClient(untracked.address) as made:
        yield made


async def test_the_client_sends_the_changes_of_a_repository(
    client: AsyncTrainingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_SECONDS", PATIENCE)
    folder = tmp_path / "program"  # not the service's folder, whose files change

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
        subprocess.run(("git", "-C", str(folder), *identity, *arguments), check=True, capture_output=True)

    def commit() -> None:
        folder.mkdir()
        (folder / "train.py").write_text("print(1)\n")
        git("init", "--quiet")
        git("add", "--all")
        git("commit", "--message", "first")
        (folder / "train.py").write_text("print(2)\n")

    await asyncio.to_thread(commit)
    job = await client.run(["python", "train.py"], folder=folder)
    text = b"".join([piece async for piece in client.changes(job)])
    assert b"-print(1)\n+print(2)\n" in text
    program: Any = (await client.artifacts(job)).provenance.request.program
    assert program.version.endswith("-dirty")
    assert (program.changes.added, program.changes.removed) == (1, 1)
    rerun = await client.rerun(job)
    assert b"".join([piece async for piece in client.changes(rerun)]) == text
    clean = await client.run(["python", "train.py"], folder=folder, version="mine")
    with pytest.raises(NotFound):
        _ = [piece async for piece in client.changes(clean)]
