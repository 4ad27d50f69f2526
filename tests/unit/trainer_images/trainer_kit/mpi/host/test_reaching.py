"""A host reaches the launcher even if one of the two is paused in the middle of the handshake."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from trainer_kit.errors import GroupError
from trainer_kit.meeting import Meeting
from trainer_kit.mpi import channel
from trainer_kit.mpi.channel import Channel, StrangerError
from trainer_kit.mpi.host import _reach_launcher
from trainer_kit.mpi.place import Place

from tests.support.patience import PATIENCE

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do not answer until the host gives up, like a launcher that is paused."""
    try:
        await reader.read()
    finally:
        writer.close()


async def close_late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection when its time is over, as if the host had been paused."""
    await asyncio.sleep(channel.HANDSHAKE_SECONDS)
    writer.close()


@pytest.mark.parametrize("first", [keep_silent, close_late])
async def test_a_slow_handshake_is_repeated(monkeypatch: pytest.MonkeyPatch, first: Peer) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_SECONDS", 0.1)
    visits = 0

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        if visits == 1:
            await first(reader, writer)
            monkeypatch.setattr(channel, "HANDSHAKE_SECONDS", PATIENCE)
        else:
            await answer(reader, writer)

    async with await asyncio.start_server(welcome, "127.0.0.1", 0) as server:
        reached = await _reach_launcher(place_at(server, timeout=int(PATIENCE)))
        reached.close()
    assert visits >= 2


async def test_a_launcher_with_another_token_is_not_tried_again() -> None:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        place = place_at(server, timeout=int(PATIENCE), token="a guess")
        with pytest.raises(GroupError, match=r"^could not authenticate the launcher at .*"):
            await _reach_launcher(place)


async def test_a_launcher_that_does_not_answer_is_reported_after_the_time_out() -> None:
    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        place = place_at(server, timeout=1)
        expected = f"^could not reach the master at {place.meeting} within 1 s: no answer$"
        with pytest.raises(GroupError, match=expected):
            await _reach_launcher(place)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection as the launcher does, until the host closes it."""
    try:
        accepted = await Channel.accepted(reader, writer, "a secret")
    except (StrangerError, TimeoutError):
        return
    await reader.read()
    accepted.close()


def place_at(server: asyncio.Server, timeout: int, token: str = "a secret") -> Place:
    host, port = server.sockets[0].getsockname()
    meeting = Meeting(host, port, timeout)
    return Place(meeting, token, instances=2, instance=1, slots=1, launcher_slots=1)
