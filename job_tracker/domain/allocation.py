"""An allocation: what the scheduler gives to an attempt. It is stored when the attempt begins."""

from dataclasses import dataclass
from typing import Final

DEFAULT_FLAVOR: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What an attempt gets."""

    flavor: str = DEFAULT_FLAVOR
    trainers: int = 0
    """The number of trainers. 0: as the job asks."""
    nodes: tuple[str, ...] = ()
    """The machine of each instance in the order of ranks, if machines are known."""
