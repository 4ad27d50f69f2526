"""When the next checkpoint is due, and how often the processes ask each other."""

import time
from collections.abc import Callable

from trainer_kit.checkpoints.settings import Settings

LOOK_SECONDS = 0.2
"""About how far two exchanges are apart, as each costs a fraction of a millisecond. SIGTERM waits as long."""


class Pace:
    """Counts steps and time since the last save was tried.

    The clock is one that nobody can set. Time differs between processes, so what follows from it is
    said to the others (`is_due`, `seconds_per_step`) and done by all of them or none; what follows
    from the number of steps is the same everywhere.
    """

    def __init__(self, settings: Settings, step: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._saved_step, self._saved_at = step, clock()
        self._looked_step, self._looked_at = step, self._saved_at
        self._next_look = step + 1

    def wants_look(self, step: int) -> bool:
        """Whether the processes should talk after this step; the answer is the same in all of them."""
        return step >= self._next_look

    def is_due(self, step: int) -> bool:
        """Whether it is time for a checkpoint, as far as this process knows."""
        steps = self._settings.every_steps
        if steps is not None and step - self._saved_step >= steps:
            return True
        return self._clock() - self._saved_at >= self._settings.every_seconds

    def seconds_per_step(self, step: int) -> float:
        """How long a step has taken since the last look."""
        return (self._clock() - self._looked_at) / max(1, step - self._looked_step)

    def looked(self, step: int, slowest: float) -> None:
        """The processes have talked after this step; `slowest` is the longest of their times for a step."""
        pause = max(1, min(int(LOOK_SECONDS / max(slowest, 1e-6)), 2 * (step - self._looked_step)))
        self._looked_step, self._looked_at = step, self._clock()
        self._next_look = step + pause
        if self._settings.every_steps is not None:
            due = max(self._saved_step + self._settings.every_steps, step + 1)
            self._next_look = min(self._next_look, due)

    def saved(self, step: int) -> None:
        """A save was begun after this step; whether it succeeds, the next one is due in a full period."""
        self._saved_step, self._saved_at = step, self._clock()
