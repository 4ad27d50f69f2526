"""The position of a process in the training, as the process has reported it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Activity(StrEnum):
    """The present activity of a process, by its own report.

    Steps are expected only while the process trains.
    """

    TRAINING = "training"
    EVALUATION = "evaluation"
    SAVING = "saving"
    COMPILING = "compiling"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class RankPace:
    """The position of one process of a group in the training. Durations are in seconds, and 0 if unknown."""

    process: int
    """The number of the process in its group. A rank may have several processes."""
    step: int | None = None
    """The number of steps done; None before the first one."""
    activity: Activity = Activity.TRAINING
    heard_at: datetime | None = None
    step_seconds: float = 0.0
    waiting_seconds: float = 0.0
    """The time within a step in which the process waited for other processes."""
    slowness: float = 0.0
    """The time of the process's own work on a step, divided by the median of all processes. 0: not slow."""
    slow_since: datetime | None = None
    stack: str = ""
    """The call stack of the main thread soon after the process became slow, innermost call last.

    Empty: unknown.
    """
