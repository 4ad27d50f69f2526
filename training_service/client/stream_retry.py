"""Retries of a stream until its first message, as gRPC retries plain calls.

gRPC's own retries of streams are off: after the last of them has failed, its blocking client waits for a
message forever (seen with 1.85). After the first message, only the reader knows how to continue, so errors
are passed on.
"""

import random

from training_service.client.errors import Unavailable

PAUSES = (0.2, 0.4, 0.8, 1.6)
"""Seconds between tries, ±20 %, as in the channel's retry policy."""


class StreamRetry:
    """The retries of one stream, from its first try to its first message."""

    def __init__(self) -> None:
        self._pauses = iter(PAUSES)

    def end(self) -> None:
        """Stop retrying: a message has arrived."""
        self._pauses = iter(())

    def pause_after(self, error: Unavailable) -> float:
        """Return the seconds until the next try. Raises `error` if no try is left."""
        for pause in self._pauses:
            return pause * random.uniform(0.8, 1.2)  # noqa: S311
        raise error
