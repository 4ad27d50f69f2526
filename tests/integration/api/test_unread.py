"""Answers that clients do not read take a bounded amount of memory, and do not block other clients."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.api_service import Serve, Service
from tests.support.http2 import unread_calls
from tests.support.logs import pieces_of, records
from tests.support.patience import PATIENCE
from training_service import job_opening
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.api import servicer
from training_service.api.sending import Places
from training_service.client import AsyncTrainingClient

PATH = "/training.TrainingService"
STRANGER = "127.0.0.2"
LINES = [f"{number} {'x' * 1000}" for number in range(15_000)]
LOG = "".join(f"{line}\n" for line in LINES)


async def large_log(service: Service) -> int:
    """An ended job with a log that is larger than gRPC's buffer for a client."""
    job_id = await service.train()
    await service.seen(job_id, pb.succeed)
    group = (await service.store.get(job_id)).group
    await job_opening.log_archive(service.settings).write(group, 0, pieces_of([records(*LINES)]))
    return job_id


async def large_job(service: Service) -> int:
    return await service.train({f"P{n}": "x" * 4_000 for n in range(15)})


async def large_model(service: Service) -> int:
    job_id = await service.train()
    model = Path((await service.status(job_id)).model_uri)
    model.mkdir(parents=True)
    (model / "model.pt").write_bytes(b"x" * 1_000_000)
    return job_id


def unread(service: Service, method: str, message: bytes, count: int = 200) -> AbstractContextManager[None]:
    return unread_calls(service.address, count, f"{PATH}/{method}", message, source=STRANGER)


async def are_held(places: Places, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(places._held) != count:
            await asyncio.sleep(0.01)


async def calls_of_grpc(count: int) -> None:
    """Wait until gRPC has at most this number of calls."""
    async with asyncio.timeout(PATIENCE):
        while len([task for task in asyncio.all_tasks() if task.get_name() == "rpc_task"]) > count:
            await asyncio.sleep(0.01)


async def have_ended(service: Service, count: int, method: str) -> None:
    """Wait until this number of calls of the method have ended.

    A call that is not a stream ends here when its answer is complete, before it is sent.
    """
    async with asyncio.timeout(PATIENCE):
        while count:
            count -= (await service.metrics.ended.get())[0] == method


async def paused(service: Service) -> asyncio.Task[Any]:
    """The only call that sends a log, once its client has stopped reading."""
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(PATIENCE):
        while True:
            await asyncio.sleep(0.01)
            for call, (_, since) in service.servicer._logs._held.items():
                if clock() - since > servicer._SEND_SECONDS:
                    return call


async def that_call_is_ended(service: Service, job_id: int) -> None:
    """End the call that has a place, by making others from its address wait for one."""
    call = await paused(service)
    request = pb.GetTrainingLogsRequest(job_id=job_id).SerializeToString()
    with unread_calls(service.address, 4, f"{PATH}/GetTrainingLogs", request):
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([call])


async def text(service: Service, job_id: int) -> str:
    request = pb.GetTrainingLogsRequest(job_id=job_id)
    return "".join([piece.text async for piece in service.stub.GetTrainingLogs(request)])


@pytest.fixture
async def narrow(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service with two places, which ends unread calls soon."""
    monkeypatch.setattr(servicer, "_SEND_SECONDS", 0.2)
    monkeypatch.setattr(servicer, "_SENT", 2)
    return await serve()


async def test_unread_logs_of_one_address_do_not_block_another(service: Service) -> None:
    job_id = await large_log(service)
    request = pb.GetTrainingLogsRequest(job_id=job_id).SerializeToString()
    with unread(service, "GetTrainingLogs", request):
        await are_held(service.servicer._logs, servicer._OF_ONE)
        assert await text(service, job_id) == LOG
        assert len(service.servicer._logs._held) == servicer._OF_ONE
    await are_held(service.servicer._logs, 0)


async def test_unread_watches_of_one_address_do_not_block_another(serve: Serve) -> None:
    service = await serve(tracked=False)
    job_id = await large_job(service)
    request = pb.WatchTrainingRequest(job_id=job_id)
    with unread(service, "WatchTraining", request.SerializeToString()):
        await are_held(service.servicer._statuses, servicer._OF_ONE)
        watch = service.stub.WatchTraining(request)
        assert (await anext(aiter(watch))).job_id == job_id
        watch.cancel()
    await are_held(service.servicer._statuses, 0)


async def test_unread_downloads_of_one_address_do_not_block_another(serve: Serve) -> None:
    service = await serve(tracked=False)
    request = pb.FetchTrainingArtifactRequest(job_id=await large_model(service), name="model.pt")
    with unread(service, "FetchTrainingArtifact", request.SerializeToString()):
        await are_held(service.servicer._files, servicer._OF_ONE)
        pieces = [len(piece.content) async for piece in service.stub.FetchTrainingArtifact(request)]
        assert sum(pieces) == 1_000_000
    await are_held(service.servicer._files, 0)


async def test_a_reader_may_pause_while_no_other_waits(narrow: Service) -> None:
    job_id = await large_log(narrow)
    call = narrow.stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id))
    pieces = aiter(call)
    read = [(await anext(pieces)).text]
    await paused(narrow)
    await asyncio.sleep(2 * servicer._SEND_SECONDS)  # time for the error to happen
    read += [piece.text async for piece in pieces]
    assert "".join(read) == LOG


async def test_unread_calls_are_ended_and_freed_if_others_wait(narrow: Service) -> None:
    job_id = await large_log(narrow)
    request = pb.GetTrainingLogsRequest(job_id=job_id).SerializeToString()
    with unread(narrow, "GetTrainingLogs", request, 20):
        await have_ended(narrow, 20 - 2, "GetTrainingLogs")
        await calls_of_grpc(2)  # no other call waits for the places of these calls
        assert await text(narrow, job_id) == LOG
    await calls_of_grpc(0)


async def test_ended_lists_are_freed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "_SEND_SECONDS", 0.2)
    service = await serve(tracked=False)
    await large_job(service)
    with unread(service, "ListTrainingJobs", b"", 40):
        await have_ended(service, 40, "ListTrainingJobs")
        await calls_of_grpc(servicer._LISTS_OF_ONE)


async def test_our_client_continues_after_its_stream_was_ended(narrow: Service) -> None:
    job_id = await large_log(narrow)
    async with AsyncTrainingClient(narrow.address) as client:
        pieces = client.logs(job_id)
        read = [(await anext(aiter(pieces))).text]
        await that_call_is_ended(narrow, job_id)
        read += [piece.text async for piece in pieces]
    assert "".join(read) == LOG


async def test_a_client_gets_cancelled_when_its_stream_is_ended(narrow: Service) -> None:
    job_id = await large_log(narrow)
    request = pb.GetTrainingLogsRequest(job_id=job_id)
    call = narrow.stub.GetTrainingLogs(request)
    await that_call_is_ended(narrow, job_id)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [piece async for piece in aiter(call)]
    assert caught.value.code() is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("way", ["cancel", "disconnect", "end"])
async def test_a_place_is_freed_after_every_end_of_a_call(service: Service, way: str) -> None:
    job_id = await large_log(service)
    async with grpc.aio.insecure_channel(service.address) as channel:
        call = TrainingServiceStub(channel).GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id))
        await anext(aiter(call))
        await are_held(service.servicer._logs, 1)
        if way == "cancel":
            call.cancel()
        elif way == "disconnect":
            await channel.close()
        else:
            async for _ in call:
                pass
        await are_held(service.servicer._logs, 0)
    assert service.servicer._logs._turns.length == 0
