"""Axes of pictures that the service draws: places in percent of the width, and round numbers beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from training_service.web.showing import duration

_MOST_TICKS: Final = 6
_LAST_TICK: Final = 94.0
"""The last place of a tick. The text of a tick further to the right would not fit."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(number * _MINUTE for number in (1, 2, 5, 10, 15, 30)),
    *(number * _HOUR for number in (1, 2, 4, 6, 12)),
    *(number * _DAY for number in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)


def _round(seconds: float) -> str:
    return f"{seconds:g} s" if 1 <= seconds < _MINUTE else duration(seconds)


@dataclass(frozen=True, slots=True)
class Tick:
    """A number beside an axis."""

    place: float
    """In percent of the width."""
    label: str


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Converts Unix times, from `first` to `last`, to places."""

    first: float
    last: float

    def place(self, at: float) -> float:
        """Return the place of a time in percent.

        Times before the first or after the last one are at the edges.
        """
        whole = self.last - self.first
        return 100.0 * min(1.0, max(0.0, (at - self.first) / whole)) if whole > 0 else 0.0

    def ticks(self, zero: float | None = None, name: str = "0") -> Sequence[Tick]:
        """Return ticks at round durations before and after the time `zero`, whose own tick is called `name`.

        Without `zero`, the first time of the scale is used.
        """
        origin = self.first if zero is None else zero
        step = next((each for each in _STEPS if (self.last - self.first) / each <= _MOST_TICKS), _STEPS[-1])
        number = -int((origin - self.first) / step)
        found: list[Tick] = []
        while (at := origin + number * step) <= self.last and len(found) <= 2 * _MOST_TICKS:
            sign = "−" if number < 0 else "+" if number and zero is not None else ""
            label = f"{sign}{_round(abs(number * step))}" if number else name
            if (place := self.place(at)) <= _LAST_TICK:
                found.append(Tick(place, label))
            number += 1
        return found
