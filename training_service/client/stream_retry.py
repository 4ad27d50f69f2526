"""Retries a stream that fails before its first message, with the pauses of calls without streams.

gRPC's own retries of streams are off: with them, gRPC's blocking client would wait forever for a message
after the last retry has failed (seen with gRPC 1.85). After the first message, only the reader knows how to
continue, so errors are passed on.
"""

import random

from training_service.client.errors import ResourceExhausted, Unavailable
from training_service.client.limit_retry import LimitRetry

PAUSES = (0.2, 0.4, 0.8, 1.6)
"""Seconds between tries, ±20 %, as in the channel's retry policy."""


class StreamRetry:
    """The retries of one stream, from its first try to its first message."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is the longest time for retries of a stream that a limit refuses."""
        self._pauses = iter(PAUSES)
        self._seconds = seconds
        self._limit: LimitRetry | None = None

    def end(self) -> None:
        """Stop retrying: a message has arrived."""
        self._pauses = iter(())
        self._seconds = 0
        self._limit = None

    def pause_after(self, error: Unavailable | ResourceExhausted) -> float:
        """Return the seconds until the next try. Raises `error` if no try is left."""
        if isinstance(error, ResourceExhausted):
            self._limit = self._limit or LimitRetry(self._seconds)
            return self._limit.pause_after(error)
        for pause in self._pauses:
            return pause * random.uniform(0.8, 1.2)  # noqa: S311
        raise error
