"""The collective operations that training processes report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

DEFAULT_GROUP = "default_pg"
"""PyTorch's description of the process group that has all processes."""
_MOST, _LONGEST = 16, 64
_LARGEST = 10**15


@dataclass(frozen=True, slots=True)
class Collective:
    """The latest collective operation that a process has begun in a process group.

    All strings are printable.
    """

    group: str
    number: int
    operation: str
    sizes: str
    done: bool

    def __str__(self) -> str:
        return f"#{self.number} {self.operation} {self.sizes}".rstrip()


class _Sent(Protocol):
    """An operation in a message of a process. Its values are unchecked."""

    group: str
    number: int
    operation: str
    sizes: str
    done: bool


def collectives_of(sent: Sequence[_Sent]) -> tuple[Collective, ...]:
    """Return the first _MOST operations of a message, with short strings of printable characters."""
    return tuple(
        Collective(
            _text(each.group),
            min(max(0, each.number), _LARGEST),
            _text(each.operation),
            _text(each.sizes),
            each.done,
        )
        for each in sent[:_MOST]
    )


def _text(value: str) -> str:
    return "".join(c for c in value[:_LONGEST] if c.isprintable())
