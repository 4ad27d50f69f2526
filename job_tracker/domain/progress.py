"""The progress of an attempt, as its ranks have reported it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

from job_tracker.domain.pace import RankPace

_NAN_AS_TEXT = {"ser_json_inf_nan": "strings"}
"""Makes pydantic write NaN and infinity as strings, since JSON has no such numbers."""


@dataclass(frozen=True, slots=True)
class Nonfinite:
    """The first NaN or infinite value of a metric in an attempt."""

    __pydantic_config__: ClassVar = _NAN_AS_TEXT

    metric: str
    value: float
    step: int
    at: datetime
    rank: int | None = None
    """The rank that reported the value; None: unknown."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The last checkpoint that an attempt has reported."""

    step: int
    at: datetime
    """The time when the checkpoint was reported or printed. At this time, the checkpoint was complete."""


MOST_SAVES: Final = 32
_FEW_SAVES: Final = 8


@dataclass(frozen=True, slots=True)
class Saves:
    """The checkpoints that an attempt has reported: their number, and some of them."""

    count: int = 0
    some: tuple[tuple[int, float], ...] = ()
    """The step and the Unix time of each kept checkpoint.

    If there are more than MOST_SAVES, only every second one is kept, later only every fourth, and so on.
    """

    def after(self, saved: Saved) -> "Saves":
        """Return these checkpoints and one more, `saved`."""
        count = self.count + 1
        every = _every(count)
        some = self.some if every == _every(self.count) else self.some[1::2]
        return Saves(count, some if count % every else (*some, (saved.step, saved.at.timestamp())))

    def few(self) -> "Saves":
        """Return a smaller copy for the job's history: the same `count`, and at most 8 checkpoints."""
        some = self.some
        while len(some) > _FEW_SAVES:
            some = some[1::2]
        return Saves(self.count, some)


NO_SAVES: Final = Saves()


def _every(count: int) -> int:
    every = 1
    while count // every > MOST_SAVES:
        every *= 2
    return every


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of training, as reported so far. Metrics map names to numbers, NaN included."""

    __pydantic_config__: ClassVar = _NAN_AS_TEXT

    step: int = 0
    total_steps: int = 0
    epoch: int = 0
    total_epochs: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    reported_at: datetime | None = None
    speed: float = 0.0
    """Steps per second, smoothed; 0 while unknown."""
    measured_at: datetime | None = None
    """The time when the speed was last measured, or when its measurement began or began again."""
    measured_step: int = 0
    """The step at the time `measured_at`."""
    ranks: tuple[RankPace, ...] = ()
    """The pace of each process that reports by calls. It may be some seconds old; in large groups, older."""
    nonfinite: tuple[Nonfinite, ...] = ()
    """For each metric that was NaN or infinite, the first such value, in the order of the reports.

    If there are very many such metrics, later ones are left out.
    """
    first_step_at: datetime | None = None
    """The time at which the attempt reported its first step. From then on, it trains."""
    saved: Saved | None = None
    """The last checkpoint of the attempt; None: it has reported none."""
    saves: Saves = NO_SAVES

    @property
    def has_all_steps(self) -> bool:
        """Return whether training has done all its steps; False if their number is unknown."""
        return 0 < self.total_steps <= self.step

    @property
    def seconds_left(self) -> float | None:
        """Return the remaining time in seconds at the present speed. None: unknown."""
        return max(0, self.total_steps - self.step) / self.speed if self.speed and self.total_steps else None
