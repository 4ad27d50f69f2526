"""The time of day, and the clock of leases."""

import time
from datetime import UTC, datetime

# Some systems lack CLOCK_BOOTTIME. On these, a machine that was asleep believes for too long that it holds
# its lease.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Return the seconds since the machine started, including sleep and pauses of this process."""
    return time.clock_gettime(_CLOCK)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
