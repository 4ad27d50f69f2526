"""The time of day, the clock of leases, and a clock that skips pauses of this process."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

# Some systems lack CLOCK_BOOTTIME. There, a service whose machine was asleep believes for too long that it
# holds its lease.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Return the seconds since the machine started, including sleep and pauses of this process."""
    return time.clock_gettime(_CLOCK)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class AwakeClock:
    """Measures the seconds in which this process was awake. `tick` has to be called often.

    A pause in which this process was suspended or overloaded counts as at most `longest` seconds. So messages
    that other processes sent during the pause do not look late.
    """

    def __init__(self, longest: float = 2.0, clock: Callable[[], float] = boot_seconds) -> None:
        self._longest = longest
        self._clock = clock
        self._base = 0.0
        self._ticked = clock()

    def __call__(self) -> float:
        """Return the awake seconds since the clock was created."""
        return self._base + min(max(0.0, self._clock() - self._ticked), self._longest)

    def tick(self) -> None:
        """Record that this process is awake."""
        self._base, self._ticked = self(), self._clock()
