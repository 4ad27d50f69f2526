"""Repeats calls that a limit of the service refused, but not before the time that the service names.

A refused call has done nothing, so it can always be repeated.
"""

import random
import time

from training_service.client.errors import ResourceExhausted

_MOST_SPREAD = 16.0


class LimitRetry:
    """The repetitions of one call, all within the call's time limit."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._spread = 1.0

    def time_left(self) -> float:
        """Return the seconds that the call has left, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def pause_after(self, error: ResourceExhausted) -> float:
        """Return the seconds until the next try.

        Raises `error` if the service names no time for the next try, or if the call times out before that
        time.
        """
        if error.retry_after is None or error.retry_after >= self.time_left():
            raise error
        # Many calls of one caller are refused together. So spread their repetitions, more widely with each
        # try.
        self._spread = min(2 * self._spread, _MOST_SPREAD)
        pause = error.retry_after * random.uniform(1, self._spread)  # noqa: S311
        return min(pause, self.time_left())
