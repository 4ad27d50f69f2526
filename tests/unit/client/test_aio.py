"""The async client shares its requests, errors and watch with the plain one: here, its own part."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.client import (
    AsyncTrainingClient,
    NotFound,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.fake_service import Server


@pytest.fixture
async def client(async_training: Server) -> AsyncIterator[AsyncTrainingClient]:
    async with AsyncTrainingClient(async_training.address) as client:
        yield client


async def test_a_job_is_submitted_watched_and_listed(
    async_training: Server, client: AsyncTrainingClient
) -> None:
    job_id = await client.submit("bert", "questions", "3f2a9c", instances=2)
    assert (await client.status(job_id)).metadata.parameters == {"PARALLEL_INSTANCES": "2"}
    statuses = client.watch(job_id)
    assert (await anext(statuses)).status == pb.queuing
    await async_training.service.tell(job_id, status=pb.succeed)
    assert [status.status async for status in statuses] == [pb.succeed]
    assert [job.job_id async for job in client.list([pb.succeed])] == [job_id]


async def test_list_fetches_all_pages(async_training: Server, client: AsyncTrainingClient) -> None:
    for job_id in range(1, 6):
        await async_training.service.tell(job_id)
    assert [job.job_id async for job in client.list(page_size=2)] == [5, 4, 3, 2, 1]
    assert len(async_training.service.requests) == 3


async def test_many_calls_share_one_client(async_training: Server, client: AsyncTrainingClient) -> None:
    ids = await asyncio.gather(*(client.submit("a", "d", "v") for _ in range(20)))
    assert sorted(ids) == list(range(1, 21))


async def test_cancel_and_wait_see_the_same_end(async_training: Server, client: AsyncTrainingClient) -> None:
    job_id = await client.submit("a", "d", "v")
    waiting = asyncio.create_task(client.wait(job_id))
    await client.cancel(job_id)
    assert (await waiting).status == pb.cancelled


async def test_wait_gives_up_when_its_time_is_up(async_training: Server, client: AsyncTrainingClient) -> None:
    await async_training.service.tell(1, status=pb.running)
    with pytest.raises(WaitTimedOut):
        await client.wait(1, timeout=0.1)


async def test_watch_goes_on_when_the_service_dies_and_comes_back(
    async_training: Server, client: AsyncTrainingClient
) -> None:
    await async_training.service.tell(1, status=pb.running)
    statuses = client.watch(1)
    assert (await anext(statuses)).status == pb.running
    await async_training.die()
    await async_training.start()
    await async_training.service.tell(1, status=pb.failure)
    assert [status.status async for status in statuses] == [pb.failure]


async def test_watch_gives_up_on_a_service_that_stays_away(async_training: Server) -> None:
    await async_training.service.tell(1, status=pb.running)
    async with AsyncTrainingClient(async_training.address, patience=0) as impatient:
        statuses = impatient.watch(1)
        await anext(statuses)
        await async_training.die()
        with pytest.raises(Unavailable):
            await anext(statuses)


async def test_logs_follow_a_job_to_its_end(async_training: Server, client: AsyncTrainingClient) -> None:
    await async_training.service.tell(1, status=pb.queuing)
    chunks = client.logs(1, follow=True)
    first = asyncio.ensure_future(anext(chunks))
    await async_training.service.print(1, "first\n")
    assert (await first).text == "first\n"
    await async_training.service.tell(1, status=pb.succeed)
    assert [chunk.text async for chunk in chunks] == []


async def test_a_log_that_breaks_goes_on_after_its_last_line(
    async_training: Server, client: AsyncTrainingClient
) -> None:
    await async_training.service.tell(1)
    await async_training.service.print(1, "one\n", "two\n", "three\n")
    async_training.service.logs_break_after = 1
    assert [chunk.text async for chunk in client.logs(1)] == ["one\n", "two\n", "three\n"]


async def test_a_log_whose_service_goes_away_before_the_first_line_ends_as_unavailable(
    hasty: None, async_training: Server, client: AsyncTrainingClient
) -> None:
    await async_training.service.tell(1, status=pb.running)
    gone = asyncio.create_task(async_training.die_once_asked())
    with pytest.raises(Unavailable):  # and not: waits for ever
        await anext(client.logs(1, follow=True))
    await gone


async def test_cancelling_a_reader_gives_the_call_up(
    async_training: Server, client: AsyncTrainingClient
) -> None:
    await async_training.service.tell(1, status=pb.running)
    started = asyncio.Event()

    async def read() -> None:
        async for _ in client.watch(1):
            started.set()

    reader = asyncio.create_task(read())
    await started.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_errors_are_those_of_the_plain_client(client: AsyncTrainingClient) -> None:
    with pytest.raises(NotFound, match="Job 5 doesn't exist"):
        await client.status(5)
    with pytest.raises(NotFound):
        await anext(client.watch(5))
    with pytest.raises(NotFound):
        await anext(client.logs(5))


async def test_nobody_at_the_address_is_told_plainly(hasty: None, dead_address: str) -> None:
    async with AsyncTrainingClient(dead_address) as client:
        with pytest.raises(Unreachable, match="Connection refused"):
            await client.submit("a", "d", "v")
