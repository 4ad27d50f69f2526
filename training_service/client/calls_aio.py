"""Makes single calls of the service, for asyncio programs.

The module for plain programs, calls_sync.py, is generated from this file by scripts/generate-client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from training_service.client.errors import ResourceExhausted
from training_service.client.limit_retry import LimitRetry
from training_service.client.requests import Metadata
from training_service.client.translation import translated_errors

T = TypeVar("T")


async def answer_of(
    call: Callable[..., Awaitable[T]],
    request: Message,
    timeout: float,
    address: str,
    metadata: Callable[[], Metadata],
) -> T:
    """Make the call, and return its answer. Before each try, `metadata` is called to get the try's metadata.

    If a limit refuses the call, this function waits at least for the time that the service names, and repeats
    the call. All tries and pauses together take at most `timeout` seconds. Raises TrainingServiceError.
    """
    retry, left = LimitRetry(timeout), timeout
    while True:
        try:
            with translated_errors(address):
                return await call(request, timeout=left, metadata=metadata())
        except ResourceExhausted as error:
            pause = retry.pause_after(error)
        await asyncio.sleep(pause)
        left = retry.time_left()
