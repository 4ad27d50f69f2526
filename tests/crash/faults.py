"""What is done to the service at which of its calls to the outside: as data, for both processes."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

KILL_BEFORE, KILL_AFTER = "kill before", "kill after"
KILLS = (KILL_BEFORE, KILL_AFTER)


class Faults(Protocol):
    """Says for every call whether something is to happen to it."""

    def choose(self, number: int, offered: Collection[str]) -> str:
        """What happens to the call with this number, out of what can happen to it; "" for nothing."""
        ...


@dataclass(slots=True)
class AtCall:
    """One fault, at the first call from that number on to which it can happen."""

    number: int
    what: str
    is_done: bool = False

    def choose(self, number: int, offered: Collection[str]) -> str:
        """See Faults."""
        if self.is_done or number < self.number or self.what not in offered:
            return ""
        self.is_done = True
        return self.what

    def __str__(self) -> str:
        return f"{self.number} {self.what}"


class AtRandom:
    """Any fault, to each call with some probability: kills and errors have one each."""

    def __init__(self, seed: int, kills: float, errors: float) -> None:
        self._random = random.Random(seed)
        self._order = (seed, kills, errors)
        self._kills, self._errors = kills, errors

    def choose(self, number: int, offered: Collection[str]) -> str:
        """See Faults."""
        for chance, kinds in (
            (self._kills, [what for what in offered if what in KILLS]),
            (self._errors, [what for what in offered if what not in KILLS]),
        ):
            # Drawn also where nothing is offered, so that calls of other kinds do not change what follows.
            drawn, which = self._random.random(), self._random.random()
            if drawn < chance and kinds:
                return sorted(kinds)[int(which * len(kinds))]
        return ""

    def __str__(self) -> str:
        seed, kills, errors = self._order
        return f"random {seed} {kills} {errors}"


def parse(text: str) -> Faults | None:
    """The faults that `str` made this text of; none for an empty one."""
    if not text:
        return None
    first, _, rest = text.partition(" ")
    if first == "random":
        seed, kills, errors = rest.split()
        return AtRandom(int(seed), float(kills), float(errors))
    return AtCall(int(first), rest)
