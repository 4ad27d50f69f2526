"""How a stream is begun: anew until its first message, as gRPC does with plain calls.

gRPC itself is not asked to: where the last of its retries of a stream fails, its blocking client waits for
a message for ever (seen with 1.85). And from the first message on, only its reader knows how to go on.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from training_service.client.errors import Unavailable
from training_service.client.translation import reading

PAUSES = (0.2, 0.4, 0.8, 1.6)
"""Seconds between the tries, ±20 %: the same as in the channel's retry policy."""


class _Opening:
    """One stream, from its first try to its first message."""

    def __init__(self) -> None:
        self._pauses = iter(PAUSES)

    def is_over(self) -> None:
        """There was a message: an error from now on is the reader's."""
        self._pauses = iter(())

    def pause_after(self, error: Unavailable) -> float:
        """Seconds until the next try. Raises the error itself when there is to be none."""
        for pause in self._pauses:
            return pause * random.uniform(0.8, 1.2)  # noqa: S311
        raise error


def messages(begin: Callable[[], Any], address: str) -> Iterator[Any]:
    """What comes on the stream that `begin` makes; see TrainingServiceError for what it raises."""
    opening = _Opening()
    while True:
        try:
            with reading(begin(), address) as stream:
                for message in stream:
                    opening.is_over()
                    yield message
            return
        except Unavailable as error:
            pause = opening.pause_after(error)
        time.sleep(pause)


async def async_messages(begin: Callable[[], Any], address: str) -> AsyncGenerator[Any, None]:
    """The same on an event loop."""
    opening = _Opening()
    while True:
        try:
            with reading(begin(), address) as stream:
                async for message in stream:
                    opening.is_over()
                    yield message
            return
        except Unavailable as error:
            pause = opening.pause_after(error)
        await asyncio.sleep(pause)
