"""Where a service and its jobs live, and what must be true of it in the end."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.crash.scenario import PlannedJob


class World(Protocol):
    """A place for one service at a time. `wraps` names the seams of what it touches (calls.py)."""

    @property
    def folder(self) -> Path:
        """Where the service's files, logs and traces are."""
        ...

    @property
    def wraps(self) -> Sequence[str]:
        """The seams that services in it have."""
        ...

    @property
    def jobs(self) -> Sequence[PlannedJob]:
        """What is to be played in it: scenario.JOBS, and perhaps more."""
        ...

    def make(self) -> None:
        """Begin anew, with nothing in it but the service's configuration."""
        ...

    def is_settled(self) -> bool:
        """Whether nothing waits for a service to clean it up: some things wait for the next sweep."""
        ...

    def problems(self) -> Iterator[str]:
        """What is wrong, or left over, when all jobs have ended and the service was stopped."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
