"""Retries a stream until its first message, as gRPC does with plain calls.

gRPC's own retries of streams are off: when the last of them fails, its blocking client waits for a message
for ever (seen with 1.85). After the first message only the reader knows how to go on: errors are passed on.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from training_service.client.errors import Unavailable
from training_service.client.translation import reading

PAUSES = (0.2, 0.4, 0.8, 1.6)
"""Seconds between tries, ±20 %, as in the channel's retry policy."""


class _Retries:
    """The retries of one stream, from its first try to its first message."""

    def __init__(self) -> None:
        self._pauses = iter(PAUSES)

    def end(self) -> None:
        """Retry no more: there was a message."""
        self._pauses = iter(())

    def pause_after(self, error: Unavailable) -> float:
        """Return the seconds until the next try. Raises `error` when there are no more."""
        for pause in self._pauses:
            return pause * random.uniform(0.8, 1.2)  # noqa: S311
        raise error


def messages(begin: Callable[[], Any], address: str) -> Iterator[Any]:
    """Yield the messages of the stream that `begin` opens. Raises TrainingServiceError."""
    retries = _Retries()
    while True:
        try:
            with reading(begin(), address) as stream:
                for message in stream:
                    retries.end()
                    yield message
            return
        except Unavailable as error:
            pause = retries.pause_after(error)
        time.sleep(pause)


async def async_messages(begin: Callable[[], Any], address: str) -> AsyncGenerator[Any, None]:
    """The same on an event loop."""
    retries = _Retries()
    while True:
        try:
            with reading(begin(), address) as stream:
                async for message in stream:
                    retries.end()
                    yield message
            return
        except Unavailable as error:
            pause = retries.pause_after(error)
        await asyncio.sleep(pause)
