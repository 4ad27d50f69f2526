"""Programs that check parameters run in turn for the addresses of callers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from job_tracker.catalog import Parameter
from tests.support.api_service import Serve, metadata
from tests.support.catalog import algorithm_of
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

FLOOD = 12


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def relay(address: str, source: str) -> AsyncIterator[str]:
    """Yield an address that forwards connections to `address`, from the address `source`."""
    passing: list[asyncio.Task[None]] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            await writer.wait_closed()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        passing.append(asyncio.create_task(pump(reader, far_writer)))
        passing.append(asyncio.create_task(pump(far_reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def test_a_flood_of_checks_from_one_address_leaves_a_turn_to_another(
    serve: Serve, tmp_path: Path
) -> None:
    begun, opened = tmp_path / "begun", tmp_path / "opened"
    begun.mkdir()
    lines = f": >{begun}/$NAME; while [ ! -e {opened} ]; do sleep 0.01; done"
    gated = algorithm_of(check=("sh", "-c", lines), parameters={"NAME": Parameter()})
    service = await serve(tracked=False, algorithms={"program": gated})
    check = service.jobs._parameter_check
    assert check is not None
    check._seconds = 2 * PATIENCE  # a call waits half as long for a turn

    async def train(stub: Any, name: str) -> None:
        await stub.Train(pb.TrainRequest(metadata=metadata({"NAME": name})))

    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(relay(service.address, "127.0.0.9"))
        stub = TrainingServiceStub(await stack.enter_async_context(grpc.aio.insecure_channel(other)))
        async with asyncio.TaskGroup() as calls:
            for number in range(FLOOD):
                calls.create_task(train(service.stub, f"flood-{number}"))
            await seen(lambda: len(list(begun.iterdir())) == 3)
            calls.create_task(train(stub, "other"))
            await seen(lambda: (begun / "other").exists())
            assert len(list(begun.iterdir())) == 4
            opened.touch()
