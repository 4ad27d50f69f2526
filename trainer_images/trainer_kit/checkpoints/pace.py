"""Decides when the next checkpoint is due, and after which steps the processes compare their decisions."""

import time
from collections.abc import Callable

from trainer_kit.checkpoints.settings import Settings

LOOK_SECONDS = 0.2
"""The approximate time in seconds between two exchanges, by which the reaction to SIGTERM may be delayed.

An exchange takes less than a millisecond.
"""


class Pace:
    """Counts steps and time since a save was last started.

    The clock is monotonic. Times differ between processes, so the processes exchange the values that depend
    on time (`is_due`, `seconds_per_step`) and decide together. Values that depend on the number of steps are
    the same in all processes.
    """

    def __init__(self, settings: Settings, step: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._saved_step, self._saved_at = step, clock()
        self._looked_step, self._looked_at = step, self._saved_at
        self._next_look = step + 1

    def wants_look(self, step: int) -> bool:
        """Return whether the processes should exchange their values after this step.

        The answer is the same in all processes.
        """
        return step >= self._next_look

    def is_due(self, step: int) -> bool:
        """Return whether this process finds that a checkpoint is due."""
        steps = self._settings.every_steps
        if steps is not None and step - self._saved_step >= steps:
            return True
        return self._clock() - self._saved_at >= self._settings.every_seconds

    def seconds_per_step(self, step: int) -> float:
        """Return the average seconds of a step since the last exchange."""
        return (self._clock() - self._looked_at) / max(1, step - self._looked_step)

    def looked(self, step: int, slowest: float) -> None:
        """Record an exchange after this step. `slowest` is the maximum of the processes' times per step."""
        pause = max(1, min(int(LOOK_SECONDS / max(slowest, 1e-6)), 2 * (step - self._looked_step)))
        self._looked_step, self._looked_at = step, self._clock()
        self._next_look = step + pause
        if self._settings.every_steps is not None:
            due = max(self._saved_step + self._settings.every_steps, step + 1)
            self._next_look = min(self._next_look, due)

    def saved(self, step: int) -> None:
        """Record the start of a save. The next save is due after a full period, even if this one fails."""
        self._saved_step, self._saved_at = step, self._clock()
