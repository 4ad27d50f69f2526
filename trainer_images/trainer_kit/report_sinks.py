"""What a report says, and where reports go.

A report is sent to the service where it can be reached (`grpc_sink`), else written to stdout: a marker and a
JSON object, every key of which may be missing:

    ::progress:: {"step": 12, "total_steps": 360, "epoch": 2, "total_epochs": 15, "metrics": {"loss": 0.41}}
    ::artifact:: {"name": "model.pt", "uri": "s3://models/7/model.pt", "kind": "model", "size": 1024}
"""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

PROGRESS, ARTIFACT = "::progress::", "::artifact::"
INTERVAL_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """How far training has come, where known."""

    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The newest value of each metric; all are finite."""


@dataclass(frozen=True)
class Artifact:
    """Something that training has made. `size` in bytes, `sha256` in hexadecimal digits, if known."""

    name: str
    uri: str
    kind: str = ""
    size: int = 0
    sha256: str = ""


class Sink(Protocol):
    """Takes reports. Whatever happens to them must not disturb the training."""

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        """Take all that is known, and the metrics that are new in this report."""
        ...

    def artifact(self, artifact: Artifact) -> None:
        """Take note of something that training has made."""
        ...

    def close(self) -> None:
        """Send the reports that wait."""
        ...


class StdoutSink:
    """Writes reports as lines on stdout, at most one of progress in `interval` seconds.

    Nothing is lost by that: each line carries the newest value of everything, and `close` writes the last.
    """

    def __init__(
        self, interval: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._known = self._written = Progress()
        self._next_at = -math.inf

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:  # noqa: ARG002  # see Sink
        self._known = known
        if self._clock() >= self._next_at:
            self._write()

    def artifact(self, artifact: Artifact) -> None:
        _write_line(ARTIFACT, {key: value for key, value in asdict(artifact).items() if value})

    def close(self) -> None:
        if self._known != self._written:
            self._write()

    def _write(self) -> None:
        known = asdict(self._known).items()
        _write_line(PROGRESS, {key: value for key, value in known if value not in (None, {})})
        self._written = self._known
        self._next_at = self._clock() + self._interval


class NullSink:
    """Drops reports: only the master's are heard."""

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        """See Sink."""

    def artifact(self, artifact: Artifact) -> None:
        """See Sink."""

    def close(self) -> None:
        """See Sink."""


def _write_line(marker: str, content: Mapping[str, object]) -> None:
    """Write a line in one call, so that no other output can break it."""
    sys.stdout.write(f"{marker} {json.dumps(content)}\n")
    sys.stdout.flush()
