"""Connections between instances end soon after the other machine is lost."""

import asyncio
import socket
from functools import partial

from trainer_kit.mpi.channel import Channel


async def test_a_lost_machine_is_noticed_whether_or_not_data_waits_to_be_acknowledged() -> None:
    here, there = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with here, there:
        there.connect(here.getsockname())
        accepted, _ = here.accept()
        reader, writer = await asyncio.open_connection(sock=accepted)
        channel = Channel(reader, writer)
        option = partial(accepted.getsockopt, socket.IPPROTO_TCP)
        idle = option(socket.TCP_KEEPIDLE) + option(socket.TCP_KEEPINTVL) * option(socket.TCP_KEEPCNT)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle <= 30
        assert option(socket.TCP_USER_TIMEOUT) == 30_000
        channel.close()
        await writer.wait_closed()
