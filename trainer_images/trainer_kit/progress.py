"""ExtraEnvironment how far training has come, and what it has made.

Reports go to the service by calls where it can be reached (see `report_calls`), else as lines on stdout:
a marker and a JSON object, every key of which may be missing:

    ::progress:: {"step": 12, "total_steps": 360, "epoch": 2, "total_epochs": 15, "metrics": {"loss": 0.41}}
    ::artifact:: {"name": "model.pt", "uri": "s3://models/7/model.pt", "kind": "model", "size": 1024}
"""

import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # it needs PyTorch, which a program that publishes a model need not have
    from trainer_kit.group import Group

PROGRESS, ARTIFACT = "::progress::", "::artifact::"
INTERVAL_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """How far training has come, as far as it is known."""

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
    """Where reports go. Nothing that happens to them may disturb the training."""

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        """All that is known, and the metrics that have just been told."""
        ...

    def artifact(self, artifact: Artifact) -> None:
        """Something was made."""
        ...

    def close(self) -> None:
        """Send what was held back."""
        ...


class Reporter:
    """Collects what is known of the progress, and passes it on."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._known = Progress()

    def report(
        self,
        *,
        step: int | None = None,
        total_steps: int | None = None,
        epoch: int | None = None,
        total_epochs: int | None = None,
        **metrics: float,
    ) -> None:
        """Takes what is new; a metric that is not finite has no place in a report and is left out."""
        counts = {"step": step, "total_steps": total_steps, "epoch": epoch, "total_epochs": total_epochs}
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._known = replace(
            self._known,
            metrics={**self._known.metrics, **finite},
            **{name: count for name, count in counts.items() if count is not None},
        )
        self._sink.progress(self._known, finite)

    def artifact(self, name: str, uri: str, *, kind: str = "", size: int = 0, sha256: str = "") -> None:
        """Tells of something that was made; a second one of the name replaces the first."""
        self._sink.artifact(Artifact(name, uri, kind, size, sha256))

    def close(self) -> None:
        """Sends what was held back."""
        self._sink.close()


class Lines:
    """Reports as lines on stdout, no more than one of progress in `interval` seconds.

    Nothing is lost by that: each line carries the newest value of everything, and `close` writes the
    last.
    """

    def __init__(
        self, interval: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._known = self._written = Progress()
        self._next_at = -math.inf

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:  # noqa: ARG002  # see Sink
        """See Sink."""
        self._known = known
        if self._clock() >= self._next_at:
            self._write()

    def artifact(self, artifact: Artifact) -> None:
        """See Sink."""
        _write_line(ARTIFACT, {key: value for key, value in asdict(artifact).items() if value})

    def close(self) -> None:
        """See Sink."""
        if self._known != self._written:
            self._write()

    def _write(self) -> None:
        known = asdict(self._known).items()
        _write_line(PROGRESS, {key: value for key, value in known if value not in (None, {})})
        self._written = self._known
        self._next_at = self._clock() + self._interval


class Silence:
    """Reports of those who are not heard."""

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        """See Sink."""

    def artifact(self, artifact: Artifact) -> None:
        """See Sink."""

    def close(self) -> None:
        """See Sink."""


@contextmanager
def reporting(group: "Group") -> Iterator[Reporter]:
    """A reporter for one training run: the master's is heard, the others' say nothing."""
    reporter = Reporter(_sink() if group.is_master else Silence())
    try:
        yield reporter
    finally:
        reporter.close()


def _sink() -> Sink:
    address, token = os.environ.get("REPORT_ADDRESS"), os.environ.get("REPORT_TOKEN")
    if address and token and importlib.util.find_spec("grpc"):
        from trainer_kit.report_calls import Calls  # an image without gRPC has no use for it

        return Calls(address, token)
    return Lines()


def _write_line(marker: str, content: Mapping[str, object]) -> None:
    """In one call, so that no other output can break the line."""
    sys.stdout.write(f"{marker} {json.dumps(content)}\n")
    sys.stdout.flush()
