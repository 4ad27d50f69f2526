"""Where a run takes place: what runs the services, what can be done to them, what must be true in the end."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.chaos.faults import Disturbances, Fault
from tests.chaos.service import Service
from tests.chaos.victims import Victims


class World(Protocol):
    """A place with services, on machines and a store of their own."""

    services: Sequence[Service]
    victims: Victims
    disturbances: Disturbances
    audit: Path
    """The folder of the audit file."""
    secret: str
    """What no client may get to read."""
    peeks: Sequence[str]
    """Names of artifacts of hostile jobs that lead there, if one follows links."""
    foreseen: Collection[str]
    """Exceptions that a service may log, as of a store that is away."""
    has_process_groups: bool
    """Whether ranks are processes of this machine: then jobs may be hostile and elastic."""

    def open(self) -> None:
        """Start all of it; return when it serves."""
        ...

    def faults(self) -> Sequence[Fault]:
        """What can be done to the service and to what it needs."""
        ...

    def heal(self) -> None:
        """See to it that all of it runs."""
        ...

    def is_settled(self) -> bool:
        """Whether nothing is left of any job but its logs."""
        ...

    def problems(self) -> Iterator[str]:
        """What is wrong, or left over, now that all jobs have ended and the services were stopped."""
        ...

    def close(self) -> None:
        """End all of it, at once."""
        ...
