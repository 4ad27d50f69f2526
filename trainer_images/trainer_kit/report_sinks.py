"""The content of reports, and the sinks that take them.

A report is sent to the service if REPORT_ADDRESS and REPORT_TOKEN are set and gRPC is installed
(`grpc_sink`). Otherwise, it is printed to stdout as a marker and a JSON object with optional keys:

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
    """The known progress of the training."""

    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The latest value of each metric. It may be NaN or infinite."""


@dataclass(frozen=True)
class Artifact:
    """A file that the training has created.

    `size` is in bytes, and `sha256` in hexadecimal digits; 0 and "" if unknown.
    """

    name: str
    uri: str
    kind: str = ""
    size: int = 0
    sha256: str = ""


class Sink(Protocol):
    """Takes reports. A failure to send them must not affect the training."""

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        """Take the whole known progress, and the metrics that are new in this report."""
        ...

    def artifact(self, artifact: Artifact) -> None:
        """Take an artifact."""
        ...

    def close(self) -> None:
        """Send the waiting reports."""
        ...


class StdoutSink:
    """Prints reports to stdout, at most one line of progress per `interval` seconds.

    Each line of progress has the latest value of every metric. `close` prints the final values.
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
        known = asdict(self._known)
        known["metrics"] = {name: _number(value) for name, value in self._known.metrics.items()}
        _write_line(PROGRESS, {key: value for key, value in known.items() if value not in (None, {})})
        self._written = self._known
        self._next_at = self._clock() + self._interval


class NullSink:
    """Drops reports. It is the sink of all processes that do not report for the group."""

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        """Do nothing."""

    def artifact(self, artifact: Artifact) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _number(value: float) -> float | str:
    """Return the value, or the string that stands for it in JSON: "NaN", "Infinity" or "-Infinity"."""
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_line(marker: str, content: Mapping[str, object]) -> None:
    """Write a line in one call, so that no other output splits it."""
    sys.stdout.write(f"{marker} {json.dumps(content)}\n")
    sys.stdout.flush()
