"""Messages between instances, each of which proves to the other that it knows the group's token.

A message is a JSON object in a line. Before the first, each side sends a nonce and then the HMAC of both
nonces, so that the token itself is never on the wire and nothing that was overheard helps. Nothing that
a stranger sends is parsed.
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
LONGEST_LINE = 2**20
"""Bytes; the arguments of a daemon name all hosts."""


class StrangerError(Exception):
    """The other side does not know the token."""


class Channel:
    """A connection to one who knows the token."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        _notice_a_dead_machine(writer)

    @classmethod
    async def accepted(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> Self:
        """The channel to one who has connected. Raises StrangerError if that one does not know the token."""
        return await cls(reader, writer)._introduced(token, own="launcher", other="instance")

    @classmethod
    async def connected(cls, host: str, port: int, token: str) -> Self:
        """The channel to the launcher. Raises OSError, or StrangerError if it does not know the token."""
        reader, writer = await asyncio.open_connection(host, port, limit=LONGEST_LINE)
        return await cls(reader, writer)._introduced(token, own="instance", other="launcher")

    async def _introduced(self, token: str, *, own: str, other: str) -> Self:
        def proof(of: str, *nonces: bytes) -> bytes:
            content = b" ".join((of.encode(), *nonces))
            return hmac.new(token.encode(), content, hashlib.sha256).hexdigest().encode()

        nonce = secrets.token_hex(16).encode()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._send_line(nonce)
                theirs = await self._receive_line()
                # With the role, so that nobody's proof can be sent back to them.
                await self._send_line(proof(own, nonce, theirs))
                given = await self._receive_line()
        except (OSError, EOFError, ValueError) as error:  # a TimeoutError is an OSError
            self.close()
            raise StrangerError("it ended the conversation, as with one who has another token") from error
        if not hmac.compare_digest(given, proof(other, theirs, nonce)):
            self.close()
            raise StrangerError("it has another token")
        return self

    async def send(self, **message: Any) -> None:
        """Sends a message. Raises OSError when the connection is lost."""
        await self._send_line(json.dumps(message).encode())

    async def receive(self) -> Message:
        """The next message. Raises EOFError or OSError when there will be none."""
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
        """Ends the connection."""
        self._writer.close()


def _notice_a_dead_machine(writer: asyncio.StreamWriter) -> None:
    """A machine that is gone says no farewell: have the connection end after half a minute of silence."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
