"""Faults: the events that hit the service at its outside calls. The test and the service, which is another
process, use these classes.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

KILL_BEFORE, KILL_AFTER = "kill before", "kill after"
KILLS = (KILL_BEFORE, KILL_AFTER)


class Faults(Protocol):
    """Decides for every call what happens to it."""

    def choose(self, number: int, offered: Collection[str]) -> str:
        """Choose what happens to the call with this number, out of `offered`; "" for nothing."""
        ...


@dataclass(slots=True)
class AtCall:
    """One fault, at the first call with this number or a higher one that offers the fault."""

    number: int
    what: str
    is_done: bool = False

    def choose(self, number: int, offered: Collection[str]) -> str:
        if self.is_done or number < self.number or self.what not in offered:
            return ""
        self.is_done = True
        return self.what

    def __str__(self) -> str:
        return f"{self.number} {self.what}"


class AtRandom:
    """Random faults: each call is hit with a probability for kills, and with another for errors."""

    def __init__(self, seed: int, kills: float, errors: float) -> None:
        self._random = random.Random(seed)
        self._order = (seed, kills, errors)
        self._kills, self._errors = kills, errors

    def choose(self, number: int, offered: Collection[str]) -> str:
        for chance, kinds in (
            (self._kills, [what for what in offered if what in KILLS]),
            (self._errors, [what for what in offered if what not in KILLS]),
        ):
            # Draw even if nothing is offered, so that other calls do not change the following choices.
            drawn, which = self._random.random(), self._random.random()
            if drawn < chance and kinds:
                return sorted(kinds)[int(which * len(kinds))]
        return ""

    def __str__(self) -> str:
        seed, kills, errors = self._order
        return f"random {seed} {kills} {errors}"


def parse(text: str) -> Faults | None:
    """Parse the text that `str` makes of faults; None for an empty text."""
    if not text:
        return None
    first, _, rest = text.partition(" ")
    if first == "random":
        seed, kills, errors = rest.split()
        return AtRandom(int(seed), float(kills), float(errors))
    return AtCall(int(first), rest)
