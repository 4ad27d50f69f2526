"""The time of day, and the clock that leases are measured with."""

import time
from datetime import UTC, datetime

# Not everywhere, and where it is missing a machine that was asleep has its lease for longer.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds since the machine started, those included in which it slept or this process was stopped."""
    return time.clock_gettime(_CLOCK)


def utc_now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)
