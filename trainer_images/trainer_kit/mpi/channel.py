"""Messages between instances. Both sides first prove that they know the group's token.

A message is one line with a JSON object. Before the first message, each side sends a nonce, and then the HMAC
of both nonces. So the token is not transmitted, and recorded traffic cannot be replayed. Data from a peer
without the token is not parsed.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
from typing import Any, Self

Message = dict[str, Any]

HANDSHAKE_SECONDS = 10.0
"""Seconds after which a connection that has not authenticated both sides is closed."""
LONGEST_LINE = 2**20
"""The maximum length of a line in bytes. It is large because the arguments of a daemon name all hosts."""


class StrangerError(Exception):
    """The peer has not proved that it knows the token."""


class Channel:
    """A connection to a peer that knows the token."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        _enable_keepalive(writer)

    @classmethod
    async def accepted(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> Self:
        """Return the channel of an accepted connection.

        Raises StrangerError if the peer does not prove that it knows the token, and TimeoutError if the
        handshake takes too long.
        """
        deadline = _handshake_deadline()
        return await cls(reader, writer)._authenticated(token, deadline, own="launcher", other="instance")

    @classmethod
    async def connected(cls, host: str, port: int, token: str) -> Self:
        """Connect to the launcher, and return the channel.

        Raises OSError if the connection fails, StrangerError if the launcher does not prove that it knows the
        token, and TimeoutError, which is an OSError, if the handshake takes too long. A slow handshake says
        nothing about the token, so the caller may try again.
        """
        # The launcher's time may begin as soon as the connection is open.
        deadline = _handshake_deadline()
        reader, writer = await asyncio.open_connection(host, port, limit=LONGEST_LINE)
        return await cls(reader, writer)._authenticated(token, deadline, own="instance", other="launcher")

    async def _authenticated(self, token: str, deadline: float, *, own: str, other: str) -> Self:
        def proof(of: str, *nonces: bytes) -> bytes:
            content = b" ".join((of.encode(), *nonces))
            return hmac.new(token.encode(), content, hashlib.sha256).hexdigest().encode()

        nonce = secrets.token_hex(16).encode()
        try:
            async with asyncio.timeout_at(deadline):
                await self._send_line(nonce)
                theirs = await self._receive_line()
                # The proof includes the sender's role, so that the peer cannot send the same proof back.
                await self._send_line(proof(own, nonce, theirs))
                given = await self._receive_line()
        except (OSError, EOFError, ValueError) as error:  # a TimeoutError is an OSError
            self.close()
            if asyncio.get_running_loop().time() >= deadline:
                # The peer may have closed the connection because this process was too slow.
                raise TimeoutError("no proof of the token in time") from error
            raise StrangerError("it closed the connection, as for a wrong token") from error
        except asyncio.CancelledError:  # the caller has a time-out of its own
            self.close()
            raise
        if not hmac.compare_digest(given, proof(other, theirs, nonce)):
            self.close()
            raise StrangerError("it has a different token")
        return self

    async def send(self, **message: Any) -> None:
        """Send a message. Raises OSError if the connection is lost."""
        await self._send_line(json.dumps(message).encode())

    async def receive(self) -> Message:
        """Wait for the next message, and return it.

        Raises EOFError or OSError if the connection has ended.
        """
        message: Message = json.loads(await self._receive_line())
        return message

    async def _send_line(self, line: bytes) -> None:
        self._writer.write(line + b"\n")
        await self._writer.drain()

    async def _receive_line(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection was closed")
        return line.removesuffix(b"\n")

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def _handshake_deadline() -> float:
    return asyncio.get_running_loop().time() + HANDSHAKE_SECONDS


def _enable_keepalive(writer: asyncio.StreamWriter) -> None:
    """On Linux, let the connection fail within half a minute after the peer's machine is gone.

    Keepalive does not probe a connection while sent data is unacknowledged; then, TCP_USER_TIMEOUT applies.
    """
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 10),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, option):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
