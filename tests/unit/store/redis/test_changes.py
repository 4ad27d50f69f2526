"""The subscription to changes in Redis."""

import asyncio

import pytest

from job_tracker.domain.job import JobState
from job_tracker.store.redis.changes import ChangeFeed
from job_tracker.store.redis.connection import Address, Connection
from tests.support.patience import PATIENCE


async def nothing_missed() -> list[tuple[int, JobState]]:
    return []


async def test_a_subscription_that_gets_no_answer_keeps_no_connection() -> None:
    asked = asyncio.Event()

    async def confirm_all_but_subscriptions(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if b"SUBSCRIBE" in data:
                asked.set()
            else:
                writer.write(b"+OK\r\n" * data.count(b"*"))
        writer.close()

    server = await asyncio.start_server(confirm_all_but_subscriptions, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection(Address(f"redis://127.0.0.1:{port}"), answer_seconds=PATIENCE)
        start = asyncio.create_task(ChangeFeed(connection, nothing_missed).start())
        await asyncio.wait_for(asked.wait(), PATIENCE)
        start.cancel()  # as at the end of the time for an answer
        with pytest.raises(asyncio.CancelledError):
            await start
        assert connection.client.connection_pool._in_use_connections == set()
        await connection.close()
