"""The protocol of a framework adapter, and its input."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from job_tracker.domain import naming
from job_tracker.domain.policies import Elastic


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an instance: a host name or an IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """Addresses and roles of the instances of a group, in the order of the instances.

    All hosts must be resolvable if the framework addresses every rank, or if the group is elastic. Otherwise,
    only the master's host must be resolvable.
    """

    addresses: tuple[Address, ...]
    roles: tuple[str, ...]
    """See GroupSpec.role_of_ranks."""
    processes_per_instance: int = 1
    elastic: Elastic | None = None

    @property
    def master(self) -> Address:
        """The address of the master, where the group meets."""
        return self.addresses[0]

    @property
    def size(self) -> int:
        """The number of instances."""
        return len(self.addresses)

    def of_role(self, *roles: str) -> list[Address]:
        """Return the addresses of the instances with one of these roles, in the order of the instances."""
        return [address for address, role in zip(self.addresses, self.roles, strict=True) if role in roles]

    def index_in_role(self, rank: int) -> int:
        """Return the number of earlier instances that have the same role as instance number `rank`."""
        return self.roles[:rank].count(self.roles[rank])


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role of a framework besides master and worker."""

    at_most: int | None = None
    needs_worker: bool = False
    """True if the role needs a worker besides the master."""
    serves: bool = False
    """True if an instance of this role never ends by itself.

    In a group with such a role, workers do not end by themselves either: all instances are stopped after the
    master has ended.
    """
    takes_rank_0: bool = False
    """True if the instance of this role is the master of the group.

    In this case, all trainers are workers.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The abilities of a framework, which decide what a request may ask for."""

    addresses_every_rank: bool = False
    """True if each rank gets the hosts of all ranks. All these hosts must then be resolvable."""
    starts_processes: bool = False
    """True if the framework can start several training processes in an instance."""
    is_elastic: bool = False
    """True if the group can continue after the loss of workers."""
    roles: Mapping[str, Role] = field(default_factory=dict)


class Framework(Protocol):
    """Computes the environment and command of an instance, only from the layout and the instance's number."""

    @property
    def traits(self) -> Traits:
        """The abilities of the framework."""
        ...

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """Return the environment variables with which instance number `rank` joins its group."""
        ...

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that starts the training processes of an instance.

        Each process runs `command`.
        """
        ...


class StartedAsIs:
    """The base class of frameworks whose programs need no launcher."""

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002
        """Return the command, unchanged."""
        return command


def group_variables(layout: GroupLayout, rank: int) -> dict[str, str]:
    """Return the usual variables of an instance, for groups with one training process in each instance."""
    return {
        "WORLD_SIZE": str(layout.size),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": layout.master.host,
        "MASTER_PORT": str(layout.master.port),
    }


TRAINERS = (naming.MASTER, naming.WORKER)
"""The roles of the instances that train, which every framework has."""
