"""The protocol of a framework adapter, and what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Where the instances of a group are: the host of each, by rank, and the port of the master.

    Unless the framework addresses every rank, only the master's host need be one that resolves.
    """

    hosts: tuple[str, ...]
    master_port: int
    processes_per_instance: int = 1

    @property
    def size(self) -> int:
        """How many instances train together."""
        return len(self.hosts)


class Framework(Protocol):
    """Works out, from the layout alone, what the process of one rank is told of its group."""

    @property
    def addresses_every_rank(self) -> bool:
        """Whether ranks are told of hosts other than the master's, each of which has to resolve."""
        ...

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The group variables of `rank`. Pure: the same layout gives the same variables."""
        ...

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:
        """What an instance runs to have so many training processes, each running `command`."""
        ...
