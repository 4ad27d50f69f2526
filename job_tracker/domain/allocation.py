"""An allocation: what the scheduler gives to an attempt. It is stored when the attempt begins."""

from dataclasses import dataclass
from typing import Final

DEFAULT_FLAVOR: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The flavor and the number of trainers that an attempt gets."""

    flavor: str = DEFAULT_FLAVOR
    trainers: int = 0
    """The number of trainers. 0: as many as the job asks for."""
    nodes: tuple[str, ...] = ()
    """The machines of the instances, if they are known: first those of trainers, then those of other roles.

    See Job.machine_of_ranks.
    """
