"""The attempts of simulated jobs: what a stop loses, and when they end."""

import math
from dataclasses import dataclass
from typing import Final

STOP_SECONDS: Final = 10.0
"""The seconds that a group takes to end after the notice."""


@dataclass(frozen=True, slots=True)
class Saving:
    """The times at which a job saves its work, and the time that it takes to get going again."""

    every: float = math.inf
    """Seconds between two checkpoints. Infinite: it saves none as it runs."""
    on_notice: bool = True
    """Whether it saves when it is asked to stop."""
    startup: float = 60.0
    """Seconds that each attempt but the first needs before it goes on."""


SAVES_AT_NOTICE: Final = Saving()
"""As trainer_kit does."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which an attempt held its machines, in seconds from the beginning of the simulation."""

    begin: float
    end: float
    held: dict[str, int]
    """The amount of each resource that it had."""
    lost: float = 0.0
    """The lost seconds: work that the next attempt repeats, and getting going again."""


@dataclass(slots=True)
class Attempt:
    """An attempt that runs. Work is counted in seconds of an attempt of the size that the job asks for."""

    number: int
    begun_at: float
    saving: Saving
    run: float
    """The work of the job."""
    done: float = 0.0
    """The work that earlier attempts have saved."""
    speed: float = 1.0
    """The work that is done in a second."""
    saved: float = 0.0
    """The seconds of training before its last checkpoint as the simulation begins."""

    @property
    def startup(self) -> float:
        """Return the seconds until it trains. For the first attempt they are part of the job's run time."""
        return self.saving.startup if self.number > 1 else 0.0

    @property
    def length(self) -> float:
        """Return how long it runs unless it is stopped."""
        return self.startup + (self.run - self.done) / self.speed

    def saved_at(self, now: float) -> float:
        """Return when it last saved a checkpoint while it ran; before the first one, when it began."""
        saved = self._saved(now)
        return self.begun_at + (self.startup + saved if saved else 0.0)

    def kept(self, noticed_at: float) -> float:
        """Return the work that is done if it is stopped."""
        trained = self._trained(noticed_at) if self.saving.on_notice else self._saved(noticed_at)
        return min(self.run, self.done + trained * self.speed)

    def lost(self, noticed_at: float, left_at: float) -> float:
        """Return the lost seconds if it is stopped: all seconds except those of the work that is kept."""
        return left_at - self.begun_at - (self.kept(noticed_at) - self.done) / self.speed

    def _trained(self, now: float) -> float:
        return max(0.0, now - self.begun_at - self.startup)

    def _saved(self, now: float) -> float:
        """Return the seconds of training before the last checkpoint."""
        every = self.saving.every
        return max(self.saved, self._trained(now) // every * every if every < math.inf else 0.0)
