"""The protocol of a framework adapter, and what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Where the instances of a group are: the host of each, by rank, and the port of the master."""

    hosts: tuple[str, ...]
    master_port: int

    @property
    def size(self) -> int:
        """How many instances train together."""
        return len(self.hosts)


class Framework(Protocol):
    """Works out, from the layout alone, what the process of one rank is told of its group."""

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The group variables of `rank`. Pure: the same layout gives the same variables."""
        ...
