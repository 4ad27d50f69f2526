"""The surroundings of a service and its jobs, and the conditions that must hold in the end."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.crash.scenario import PlannedJob


class World(Protocol):
    """Surroundings for one service at a time. `wraps` names the seams of the service (calls.py)."""

    @property
    def folder(self) -> Path:
        """The folder of the service's files, logs and traces."""
        ...

    @property
    def wraps(self) -> Sequence[str]:
        """The names of the seams of its services."""
        ...

    @property
    def jobs(self) -> Sequence[PlannedJob]:
        """The jobs to play: scenario.JOBS, and possibly more."""
        ...

    @property
    def evict(self) -> Callable[[int], None] | None:
        """A function that stops an instance of a running job, as others do. None: there are no evictions."""
        ...

    @property
    def decides(self) -> bool:
        """Return whether the service decides which jobs run. Otherwise, the cluster's own queue does."""
        ...

    def make(self) -> None:
        """Start afresh, with nothing but the service's configuration."""
        ...

    def is_settled(self) -> bool:
        """Return whether the clean-up is complete, so that a later sweep of a service has nothing to do."""
        ...

    def problems(self) -> Iterator[str]:
        """Yield the problems and leftovers after all jobs have ended and the service was stopped."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...
