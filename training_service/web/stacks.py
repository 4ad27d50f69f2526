"""The stacks of a stalled attempt's ranks, as its diagnosis keeps them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.domain.diagnosis import Category, Diagnosis

_HEAD: Final = re.compile(r"^((?:Rank|Process)(?:s|es)? \d[^:\n]{0,200}):(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Standing:
    """Ranks whose main threads are at the same place in the program."""

    who: str
    seen: str
    """The facts that the service found about the processes of these ranks; may be empty."""
    stack: str
    """The calls of the main thread, the innermost last; empty: unknown."""


def standings_of(failure: Diagnosis | None) -> Sequence[Standing]:
    """Return the places in the program at which the ranks are, from the diagnosis of a stalled attempt.

    First come the ranks that did not reach the operation in which the others wait. The result is empty if the
    attempt has not stalled.
    """
    if failure is None or failure.category is not Category.STALLED:
        return []
    _, *parts = _HEAD.split(failure.detail)
    return [
        Standing(who, seen.strip(), stack.strip("\n"))
        for who, seen, stack in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]
