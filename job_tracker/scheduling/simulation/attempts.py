"""The attempts of simulated jobs: when they end, and what a stop loses."""

import math
from dataclasses import dataclass
from typing import Final

STOP_SECONDS: Final = 10.0
"""The seconds that a group takes to end after the notice."""


@dataclass(frozen=True, slots=True)
class Saving:
    """The times at which a job saves its work, and its startup time after a stop."""

    every: float = math.inf
    """Seconds between two checkpoints. Infinite: the job saves no checkpoints while it runs."""
    on_notice: bool = True
    """Whether the job saves its work when it gets the notice to stop."""
    startup: float = 60.0
    """The seconds that each attempt after the first needs before it trains."""


SAVES_AT_NOTICE: Final = Saving()
"""Jobs that save their work at the notice, as with trainer_kit."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which an attempt held its machines, in seconds from the beginning of the simulation."""

    begin: float
    end: float
    held: dict[str, int]
    """The amount of each resource that the attempt held."""
    lost: float = 0.0
    """The lost seconds: the startup of this attempt, the work that the next attempt repeats, and the time
    that the stop took.
    """


@dataclass(slots=True)
class Attempt:
    """An attempt that runs.

    Work is measured in seconds: the time that the work takes in the size that `TraceJob.run` assumes.
    """

    number: int
    begun_at: float
    saving: Saving
    run: float
    """The whole work of the job."""
    done: float = 0.0
    """The work that earlier attempts have saved."""
    speed: float = 1.0
    """The work that the attempt does in a second."""
    saved: float = 0.0
    """The seconds of training that were saved at the last checkpoint before the simulation began.

    0: there was no such checkpoint.
    """

    @property
    def startup(self) -> float:
        """The seconds until the attempt trains.

        In the first attempt, the startup is part of the job's run time, so this is 0.
        """
        return self.saving.startup if self.number > 1 else 0.0

    @property
    def length(self) -> float:
        """The seconds for which the attempt runs if it is not stopped."""
        return self.startup + (self.run - self.done) / self.speed

    def saved_at(self, now: float) -> float:
        """Return the time of the last checkpoint that the attempt saved as it ran.

        Before the first checkpoint, this is the time at which the attempt began.
        """
        saved = self._saved(now)
        return self.begun_at + (self.startup + saved if saved else 0.0)

    def kept(self, noticed_at: float) -> float:
        """Return the work of the job that is saved if the attempt gets the notice to stop at this time."""
        trained = self._trained(noticed_at) if self.saving.on_notice else self._saved(noticed_at)
        return min(self.run, self.done + trained * self.speed)

    def lost(self, noticed_at: float, left_at: float) -> float:
        """Return the seconds that the attempt loses if it gets the notice and leaves at these times.

        The loss is the attempt's duration, minus the time in which it did the work that is kept.
        """
        return left_at - self.begun_at - (self.kept(noticed_at) - self.done) / self.speed

    def _trained(self, now: float) -> float:
        return max(0.0, now - self.begun_at - self.startup)

    def _saved(self, now: float) -> float:
        """Return the seconds of this attempt's training before its last checkpoint."""
        every = self.saving.every
        return max(self.saved, self._trained(now) // every * every if every < math.inf else 0.0)
