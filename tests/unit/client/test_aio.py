"""The async client in tasks. `test_sync.py` tests the behaviour that both clients share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.client import AsyncTrainingClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.fake_service import Server


@pytest.fixture
async def async_client(async_training: Server) -> AsyncIterator[AsyncTrainingClient]:
    async with AsyncTrainingClient(async_training.address) as client:
        yield client


async def test_many_calls_share_one_client(async_client: AsyncTrainingClient) -> None:
    ids = await asyncio.gather(*(async_client.submit("a", "d", "v") for _ in range(20)))
    assert sorted(ids) == list(range(1, 21))


async def test_a_task_waits_while_another_cancels(async_client: AsyncTrainingClient) -> None:
    job_id = await async_client.submit("a", "d", "v")
    waiting = asyncio.create_task(async_client.wait(job_id))
    await async_client.cancel(job_id)
    assert (await waiting).status == pb.cancelled


async def test_cancelling_a_reader_ends_its_call(
    async_training: Server, async_client: AsyncTrainingClient
) -> None:
    await async_training.service.set_job(1, status=pb.running)
    started = asyncio.Event()

    async def read() -> None:
        async for _ in async_client.watch(1):
            started.set()

    reader = asyncio.create_task(read())
    await started.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
