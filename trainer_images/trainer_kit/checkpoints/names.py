"""The names in the folder of a job's checkpoints, and what a list of them says.

    attempt-0000000002.0001.9f3c61ab.fence                     this start of attempt 2 has begun
    attempt-0000000002.0001.9f3c61ab.step-000000000120/        the parts of a checkpoint
    attempt-0000000002.0001.9f3c61ab.step-000000000120.json    its manifest, written when they are whole

Who begins later has the greater name, so no process ever writes what another one has written, and
the order of the names is the order in which checkpoints count.
"""

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

_RUN = r"attempt-(\d{10})\.(\d{4,})\.([0-9a-f]{8})"
_FENCE = re.compile(rf"{_RUN}\.fence")
_CHECKPOINT = re.compile(rf"{_RUN}\.step-(\d{{12}})(\.json)?")


@dataclass(frozen=True, order=True)
class Run:
    """One start of the group: an attempt, and how often that attempt was started before it."""

    attempt: int
    start: int
    nonce: str
    """Tells two apart that were started at the same moment."""

    @classmethod
    def after(cls, others: Iterable["Run"], attempt: int) -> Self:
        """A new start of `attempt`, greater than the earlier ones."""
        starts = [run.start for run in others if run.attempt == attempt]
        return cls(attempt, max(starts, default=0) + 1, secrets.token_hex(4))

    def __str__(self) -> str:
        return f"attempt-{self.attempt:010}.{self.start:04}.{self.nonce}"

    @property
    def fence(self) -> str:
        """The file that says that this run has begun."""
        return f"{self}.fence"


@dataclass(frozen=True, order=True)
class Checkpoint:
    """What one run had come to after so many steps."""

    run: Run
    step: int

    def __str__(self) -> str:
        return f"{self.run}.step-{self.step:012}"

    @property
    def manifest(self) -> str:
        """The file without which the checkpoint does not exist."""
        return f"{self}.json"


@dataclass(frozen=True)
class Listing:
    """What the folder held at one moment. Files that are not ours are not looked at."""

    runs: frozenset[Run]
    published: tuple[Checkpoint, ...]
    """Newest first."""
    unpublished: frozenset[Checkpoint]
    """Folders of parts without a manifest."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Reads the names of a folder's files and folders."""
        runs: set[Run] = set()
        parts: set[Checkpoint] = set()
        manifests: set[Checkpoint] = set()
        for name in names:
            if fence := _FENCE.fullmatch(name):
                runs.add(_run(fence))
            elif found := _CHECKPOINT.fullmatch(name):
                (manifests if found[5] else parts).add(Checkpoint(_run(found), int(found[4])))
        return cls(frozenset(runs), tuple(sorted(manifests, reverse=True)), frozenset(parts - manifests))

    def successor_of(self, run: Run) -> Run | None:
        """Who has begun after `run`, if anybody has."""
        newest = max(self.runs, default=run)
        return newest if newest > run else None


def _run(found: re.Match[str]) -> Run:
    return Run(int(found[1]), int(found[2]), found[3])
