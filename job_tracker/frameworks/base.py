"""The protocol of a framework adapter, and what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from job_tracker.domain import naming
from job_tracker.domain.policies import Elastic


@dataclass(frozen=True, slots=True)
class Address:
    """Where an instance can be reached: a name or an address that resolves, and a port that is its own."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """Where the instances of a group are, by rank, and what each of them is.

    Unless the framework addresses every rank, only the master's host need be one that resolves.
    """

    addresses: tuple[Address, ...]
    roles: tuple[str, ...]
    """See GroupSpec.role_of_ranks."""
    processes_per_instance: int = 1
    elastic: Elastic | None = None

    @property
    def master(self) -> Address:
        """Where the group meets."""
        return self.addresses[0]

    @property
    def size(self) -> int:
        """How many instances there are."""
        return len(self.addresses)

    def of_role(self, *roles: str) -> list[Address]:
        """The instances that have one of these roles, by rank."""
        return [address for address, role in zip(self.addresses, self.roles, strict=True) if role in roles]

    def index_in_role(self, rank: int) -> int:
        """How many of the same role come before the rank."""
        return self.roles[:rank].count(self.roles[rank])


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role besides master and worker, as a framework knows it."""

    at_most: int | None = None
    needs_worker: bool = False
    """Whether it makes no sense unless there is a worker besides the master."""
    serves: bool = False
    """Whether it, and then the workers too, never end by themselves: they are ended after the master."""
    takes_rank_0: bool = False
    """Whether it is the master of the group, and every other instance a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a framework can do, which decides what may be asked for."""

    addresses_every_rank: bool = False
    """Whether ranks are told of hosts other than the master's, each of which has to resolve."""
    starts_processes: bool = False
    """Whether it starts several training processes in an instance."""
    is_elastic: bool = False
    """Whether the group can go on after it has lost workers."""
    roles: Mapping[str, Role] = field(default_factory=dict)


class Framework(Protocol):
    """Works out, from the layout alone, what an instance is told of its group. Pure."""

    @property
    def traits(self) -> Traits:
        """What it can do."""
        ...

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The group variables of `rank`: the same layout gives the same variables."""
        ...

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:
        """What an instance runs to have so many training processes, each running `command`."""
        ...


class StartedAsIs:
    """Of frameworks whose programs need no launcher."""

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002
        """The command as it is, whatever the layout."""
        return command


def group_variables(layout: GroupLayout, rank: int) -> dict[str, str]:
    """The group, as most programs read it, if every instance is one training process."""
    return {
        "WORLD_SIZE": str(layout.size),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": layout.master.host,
        "MASTER_PORT": str(layout.master.port),
    }


TRAINERS = (naming.MASTER, naming.WORKER)
"""The roles that every framework has."""
