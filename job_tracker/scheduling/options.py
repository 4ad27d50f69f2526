"""The settings of the planner."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

HALF_LIFE: Final = timedelta(days=1)
"""After this time, past usage counts half, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """The limits of the planner, and its weights for the past and current use of a queue."""

    reservations: int = 100
    """The number of waiting jobs that hold a reservation."""
    overtake_limit: int = 8
    """The number of jobs that may start, or be promised a start, before the first waiting job while no start
    can be promised to it. As many jobs of the same queue may start before a job whose promised start is put
    off again and again."""
    half_life: float = HALF_LIFE.total_seconds()
    """After this many seconds, past usage counts half."""
    entry_penalty: float = 600.0
    """The present use of a queue counts as if it had lasted this many seconds longer."""
    scan: int = 5_000
    """The number of waiting jobs that a pass looks at."""
    delegated: int | None = None
    """The number of a queue's launched jobs that may wait in the cluster's own queue, which decides when they
    start. None: this service decides."""
