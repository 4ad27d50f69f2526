"""The names in the folder of a job's checkpoints.

    attempt-0000000002.0001.9f3c61ab.fence                     this run of attempt 2 has started
    attempt-0000000002.0001.9f3c61ab.step-000000000120/        the parts of a checkpoint
    attempt-0000000002.0001.9f3c61ab.step-000000000120.json    its manifest, written after all parts

Each run has its own name, so no run writes files of another run. A later run has a greater name, so the order
of the names is the order of the checkpoints.
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
    """One start of the group in an attempt. An attempt may be started several times."""

    attempt: int
    start: int
    nonce: str
    """A random text that distinguishes two runs that start at the same moment."""

    @classmethod
    def after(cls, others: Iterable["Run"], attempt: int) -> Self:
        """Return a new run of `attempt`, greater than the runs of this attempt in `others`."""
        starts = [run.start for run in others if run.attempt == attempt]
        return cls(attempt, max(starts, default=0) + 1, secrets.token_hex(4))

    def __str__(self) -> str:
        return f"attempt-{self.attempt:010}.{self.start:04}.{self.nonce}"

    @property
    def fence(self) -> str:
        """The name of the file that marks the start of this run."""
        return f"{self}.fence"


@dataclass(frozen=True, order=True)
class Checkpoint:
    """The checkpoint of a run after a step."""

    run: Run
    step: int

    def __str__(self) -> str:
        return f"{self.run}.step-{self.step:012}"

    @property
    def manifest(self) -> str:
        """The name of the manifest. Without this file, the checkpoint does not exist."""
        return f"{self}.json"


@dataclass(frozen=True)
class Listing:
    """The content of the folder at one moment, without unrelated files."""

    runs: frozenset[Run]
    published: tuple[Checkpoint, ...]
    """The checkpoints with a manifest, the newest first."""
    unpublished: frozenset[Checkpoint]
    """The checkpoints that have a folder of parts, but no manifest."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Return the content of a folder from the names of its files and folders."""
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
        """Return the latest run that started after `run`; None if there is none."""
        newest = max(self.runs, default=run)
        return newest if newest > run else None


def _run(found: re.Match[str]) -> Run:
    return Run(int(found[1]), int(found[2]), found[3])
