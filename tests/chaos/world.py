"""The surroundings of a run: its services, their faults, and the conditions that must hold in the end."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.chaos.faults import Disturbances, Fault
from tests.chaos.service import Service
from tests.chaos.victims import Victims


class World(Protocol):
    """The services of one run, which share a store of their own."""

    services: Sequence[Service]
    victims: Victims
    disturbances: Disturbances
    audit: Path
    """The folder of the audit file."""
    secret: str
    """The secret that no client may read."""
    peeks: Sequence[str]
    """Names of artifacts of hostile jobs that lead to the secret if links are followed."""
    foreseen: Collection[str]
    """Exceptions that a service may log, such as for an unreachable store."""
    has_process_groups: bool
    """True if ranks are processes of this machine, so that jobs may be hostile and elastic."""

    def open(self) -> None:
        """Start everything; return when the services serve."""
        ...

    def faults(self) -> Sequence[Fault]:
        """Return the faults of the service and of its dependencies."""
        ...

    def heal(self) -> None:
        """Ensure that everything runs."""
        ...

    def is_settled(self) -> bool:
        """Return whether only logs are left of all jobs."""
        ...

    def problems(self) -> Iterator[str]:
        """Yield problems and leftovers after all jobs have ended and the services were stopped."""
        ...

    def close(self) -> None:
        """End everything at once."""
        ...
