"""The settings of the planner."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

HALF_LIFE: Final = timedelta(days=1)
"""After this time, past usage counts half, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """The limits of the planner, and how it counts the past and the present use of a queue."""

    reservations: int = 100
    """The largest number of waiting jobs that hold a reservation."""
    overtake_limit: int = 8
    """The number of jobs that may overtake the first waiting job while no start can be promised to it.

    A job overtakes another job if it starts, or is promised a start, before the other job. After the promised
    start of a job has been put off, at most this number of jobs of its own queue may overtake it.
    """
    half_life: float = HALF_LIFE.total_seconds()
    """After this many seconds, past usage counts half."""
    entry_penalty: float = 600.0
    """The seconds for which the present use of a queue counts in addition to its past usage."""
    scan: int = 5_000
    """The largest number of waiting jobs that a pass considers without starting them."""
    delegated: int | None = None
    """The number of jobs of each queue that may wait in the cluster's own queue, if that queue decides when
    jobs start. None: this service decides."""
