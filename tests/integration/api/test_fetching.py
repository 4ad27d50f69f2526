"""Instances fetch the files of their own program, and nothing else."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest

from job_tracker.common.clock import utc_now
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.trees.store import ProjectTrees
from tests.support.access import bearer, failure
from tests.support.api_service import Serve, Service
from tests.support.trees import FILES, manifest_of, put, sha256_of
from training_service._generated import training_reporter_pb2 as rpb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub
from training_service.program_opening import open_trees

TREE, MANIFEST = manifest_of(FILES)
LARGE = {"large": bytes(8 << 20)}


def trees_of(service: Service) -> ProjectTrees:
    return open_trees(service.settings).of("default")


async def admitted(service: Service, files: dict[str, bytes] = FILES) -> Job:
    """Queue a job that runs an uploaded program, and admit it."""
    tree = await asyncio.to_thread(put, trees_of(service), files)
    request = pb.TrainRequest(program=pb.Program(tree=tree, command=["python", "train.py"]))
    job_id = (await service.stub.Train(request)).job_id
    return await service.store.update((await service.store.get(job_id)).admitted(utc_now()))


def fetch(service: Service, token: str, *, manifest_only: bool = False) -> Any:
    stub: Any = TrainingReporterStub(service.channel)
    return stub.FetchProgram(rpb.FetchProgramRequest(manifest_only=manifest_only), metadata=bearer(token))


async def content_of(call: Any) -> bytes:
    return b"".join([message.content async for message in call])


async def test_an_attempt_fetches_its_tree(untracked: Service) -> None:
    job = await admitted(untracked)
    whole = await content_of(fetch(untracked, untracked.tokens.issue(job.id, 1)))
    assert whole == MANIFEST + b"\n" + b"".join(FILES[path] for path in sorted(FILES))


async def test_an_instance_that_has_the_contents_gets_the_manifest_only(untracked: Service) -> None:
    job = await admitted(untracked)
    token = untracked.tokens.issue(job.id, 1)
    assert await content_of(fetch(untracked, token, manifest_only=True)) == MANIFEST + b"\n"
    code, _ = await failure(fetch(untracked, untracked.tokens.issue(job.id, 2), manifest_only=True))
    assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_messages_are_small_enough_for_every_client(untracked: Service) -> None:
    job = await admitted(untracked, LARGE)
    call = fetch(untracked, untracked.tokens.issue(job.id, 1))
    sizes = [len(message.content) async for message in call]
    assert sum(sizes) > len(LARGE["large"])
    assert max(sizes) <= 2 << 20  # by default, clients of gRPC accept messages of at most 4 MiB


async def test_only_the_token_of_the_live_attempt_fetches(untracked: Service) -> None:
    job = await admitted(untracked)
    other = await untracked.train()
    issue = untracked.tokens.issue
    mac = issue(job.id, 1).split(".")[-1]
    for token, code in (
        ("rubbish", grpc.StatusCode.UNAUTHENTICATED),
        (f"{other}.1.{mac}", grpc.StatusCode.UNAUTHENTICATED),
        (untracked.tokens.group(job.id, 1), grpc.StatusCode.UNAUTHENTICATED),
        (issue(job.id, 2), grpc.StatusCode.FAILED_PRECONDITION),
        (issue(other, 1), grpc.StatusCode.FAILED_PRECONDITION),
    ):
        assert (await failure(fetch(untracked, token)))[0] is code
    await untracked.store.update(job.ended(Ending(JobState.FAILED, utc_now()), utc_now()))
    over = await failure(fetch(untracked, issue(job.id, 1)))
    assert over[0] is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_job_without_a_program_has_no_files(untracked: Service) -> None:
    job = await untracked.store.get(await untracked.train())
    await untracked.store.update(job.admitted(utc_now()))
    code, message = await failure(fetch(untracked, untracked.tokens.issue(job.id, 1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "runs no uploaded program" in message


@pytest.mark.parametrize("by", [None, b"print('stolen')"])
async def test_files_that_are_gone_or_changed_are_a_final_refusal(
    untracked: Service, by: bytes | None
) -> None:
    job = await admitted(untracked)
    blob = (trees_of(untracked).blobs / sha256_of(FILES["train.py"])).path
    blob.unlink() if by is None else blob.write_bytes(by)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await content_of(fetch(untracked, untracked.tokens.issue(job.id, 1)))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "train.py" in (refused.value.details() or "")


async def test_fetches_are_counted_with_the_reports_of_their_attempt(serve: Serve) -> None:
    service = await serve(tracked=False, limits={"report_rate": 0.01, "report_burst": 1})
    job = await admitted(service)
    token = service.tokens.issue(job.id, 1)
    await content_of(fetch(service, token))
    assert (await failure(fetch(service, token)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_clients_that_do_not_read_do_not_stop_another_job(untracked: Service) -> None:
    slow, quick = await admitted(untracked, LARGE), await admitted(untracked)
    held = [fetch(untracked, untracked.tokens.issue(slow.id, 1)) for _ in range(6)]
    for call in held[:4]:
        await call.read()
    assert await content_of(fetch(untracked, untracked.tokens.issue(quick.id, 1)))
    for call in held:
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call.code()
