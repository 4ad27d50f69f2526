"""Signs of life of this process for the service: its step, the step's time, waiting time, and its phase.

Recording a sign takes about a microsecond and sends nothing: the thread of `grpc_sink` reads the signs
regularly.

    with reporting(group) as reporter:
        for number, batch in enumerate(batches, start=1):
            train(batch)
            group.step(number)  # `reporter.report(step=number)` counts as well
        with group.phase("evaluation"):
            evaluate()
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TRAINING, EVALUATION, SAVING, COMPILING, DONE = "training", "evaluation", "saving", "compiling", "done"
PHASES = (TRAINING, EVALUATION, SAVING, COMPILING)
_RECENT, _ENOUGH = 16, 8  # steps
_BETWEEN_LOOKS = 2.0  # seconds; `seen_at` assumes that a new place was reached at most this long ago


@dataclass(frozen=True)
class Standing:
    """The position of a process in the training. Times are in seconds; 0 if they are unknown."""

    step: int | None
    longest_step: float
    """The time of the longest of the last steps."""
    step_seconds: float
    """The median time of the last steps, once there are enough of them.

    Phases other than training are left out.
    """
    waiting_seconds: float
    """The part of `step_seconds` in which the process waited for others: `step_seconds` minus the median
    time of its own work."""
    waiting: bool
    phase: str
    moved_ago: float
    """The seconds since the last activity of the process. Activities are a new step or phase, a report, and a
    staged piece of data."""
    still_for: float
    """The seconds for which the process's main thread has stood at one place of the program; see
    `Steps.seen_at`."""


class Steps:
    """The signs of life of one process. Its main thread writes them, and another thread reads them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step: int | None = None
        self._began: float | None = None
        self._aside = 0.0  # seconds of this step in phases other than training
        self._waited = 0.0  # seconds of this step in which the process waited for others
        self._waiting = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._phase = TRAINING
        self._moved: float | None = None
        self._place: int | None = None
        self._arrived = self._looked = clock()

    def has_moved(self) -> None:
        """Record that this process is active: for example, it has something to report. Safe in any thread."""
        self._moved = self._clock()

    def step(self, number: int) -> None:
        """Record that `number` steps are done. The same number as in the last call changes nothing.

        A step after a call of `end` belongs to another training run in this process.
        """
        if self._phase == DONE:
            self._phase, self._step, self._began = TRAINING, None, None
            self._recent.clear()
        if number == self._step:
            return
        now = self._clock()
        if self._began is not None:
            self._recent.append((max(0.0, now - self._began - self._aside), self._waited))
        self._step, self._began, self._aside, self._waited = number, now, 0.0, 0.0
        self._moved = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Declare that the block is the phase `name`, one of PHASES. Steps are expected only in training."""
        if name not in PHASES:
            raise ValueError(f"phase {name!r} is not allowed; allowed: {', '.join(PHASES)}")
        before, began = self._phase, self._clock()
        self._phase, self._moved = name, began
        try:
            yield
        finally:
            self._phase, self._moved = before, self._clock()
            if before == TRAINING:  # the time of a nested phase is already in that of the outer phase
                self._aside += self._moved - began

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Declare that this process waits for others within the block, as in a collective operation."""
        began = self._clock()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._phase == TRAINING:
                self._waited += self._clock() - began

    def last(self) -> tuple[float, float] | None:
        """Return the seconds of the last step, and the part in which the process waited; None if unknown."""
        return self._recent[-1] if self._recent else None

    def end(self) -> None:
        """Declare that there will be no more steps."""
        self._phase = DONE

    def seen_at(self, place: int) -> None:
        """Record where the main thread is: `place` is a number for its stack (stacks.place).

        The thread that reads the signs calls this about once a second. If the place is new, the main thread
        has reached it at an unknown time since the previous call. The latest of three times counts as the
        time of the arrival: the previous call, the last activity of the process, and _BETWEEN_LOOKS seconds
        ago.
        """
        now = self._clock()
        if place != self._place:
            self._place = place
            self._arrived = max(self._looked, now - _BETWEEN_LOOKS, self._moved or 0.0)
        self._looked = now

    def standing(self) -> Standing:
        """Return the current position of the process. Safe in any thread."""
        recent = tuple(self._recent)
        usual = own = 0.0
        if len(recent) >= _ENOUGH:
            usual = statistics.median(seconds for seconds, _ in recent)
            own = statistics.median(seconds - waited for seconds, waited in recent)
        return Standing(
            step=self._step,
            longest_step=max((seconds for seconds, _ in recent), default=0.0),
            step_seconds=usual,
            waiting_seconds=max(0.0, usual - own),
            waiting=self._waiting > 0,
            phase=self._phase,
            moved_ago=0.0 if self._moved is None else max(0.0, self._clock() - self._moved),
            still_for=max(0.0, self._clock() - self._arrived),
        )


OF_PROCESS = Steps()
"""The signs of life of this process."""
