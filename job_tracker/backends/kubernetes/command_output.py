"""The output of a command in a container: the protocol of pods/exec over a WebSocket."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
from pydantic_core import from_json

from job_tracker.backends.kubernetes.api_errors import Invalid, from_answer

_PROTOCOL = "v4.channel.k8s.io"
_STDOUT, _STATUS = 1, 3
"""Channels. The first byte of each message is the number of its channel."""
_MOST_OF_MESSAGE = 4 << 20


async def command_output(
    rest: Any, url: str, headers: Mapping[str, str], seconds: float
) -> AsyncGenerator[bytes, None]:
    """Run the command in the URL, and read its output in pieces.

    `rest` is the library's REST client, whose connections are used. Raises TimeoutError if the next piece
    does not come within `seconds`. Raises ApiError: Forbidden if the service lacks the right, and Invalid if
    the container does not run or lacks the command.
    """
    if rest.pool_manager is None:
        rest.pool_manager = rest._create_pool_manager()
    session: aiohttp.ClientSession = rest.pool_manager
    try:
        async with session.ws_connect(
            url,
            headers={**headers, "Accept": "*/*"},  # the answer is not JSON
            protocols=(_PROTOCOL,),
            proxy=rest.proxy,
            timeout=aiohttp.ClientWSTimeout(ws_receive=seconds, ws_close=1.0),
            max_msg_size=_MOST_OF_MESSAGE,
        ) as socket:
            async for message in socket:
                data = message.data
                if message.type is not aiohttp.WSMsgType.BINARY or not data:
                    continue
                if data[0] == _STDOUT:
                    yield bytes(data[1:])
                elif data[0] == _STATUS:
                    _check(from_json(data[1:]))
    except aiohttp.WSServerHandshakeError as error:
        raise from_answer(error.status, str(error.message).encode(), None) from error


def _check(status: Mapping[str, Any]) -> None:
    """Raise Invalid if the command could not be started. The command's exit code is ignored."""
    if status.get("status") != "Success" and status.get("reason") != "NonZeroExitCode":
        raise Invalid(400, str(status.get("reason") or "Failure"), str(status.get("message") or "")[:500])
