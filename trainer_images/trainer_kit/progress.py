"""Telling how far training has come.

Each report is one line on stdout, a marker and a JSON object, every key of which may be missing:

    ::progress:: {"step": 12, "total_steps": 360, "epoch": 2, "total_epochs": 15, "metrics": {"loss": 0.41}}
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from trainer_kit.group import Group

MARKER = "::progress::"
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

    def line(self) -> str:
        """The report as the one line that the service reads."""
        known = {key: value for key, value in asdict(self).items() if value not in (None, {})}
        return f"{MARKER} {json.dumps(known)}\n"


Sink = Callable[[Progress], None]
"""Where reports go: a line on stdout today, any other channel tomorrow."""


class Reporter:
    """Collects what is known of the progress and passes the whole of it on, now and then.

    Reports that come faster than one in `interval` seconds are held back. Nothing is lost by that:
    each report that does go out carries the newest value of everything, and `close` sends the last.
    """

    def __init__(
        self, sink: Sink, interval: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sink = sink
        self._interval = interval
        self._clock = clock
        self._known = self._sent = Progress()
        self._next_at = -math.inf

    def report(
        self,
        *,
        step: int | None = None,
        total_steps: int | None = None,
        epoch: int | None = None,
        total_epochs: int | None = None,
        **metrics: float,
    ) -> None:
        """Takes what is new; a metric that is not finite has no place in JSON and is left out."""
        counts = {"step": step, "total_steps": total_steps, "epoch": epoch, "total_epochs": total_epochs}
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._known = replace(
            self._known,
            metrics={**self._known.metrics, **finite},
            **{name: count for name, count in counts.items() if count is not None},
        )
        if self._clock() >= self._next_at:
            self._send()

    def close(self) -> None:
        """Sends what was held back."""
        if self._known != self._sent:
            self._send()

    def _send(self) -> None:
        self._sink(self._known)
        self._sent = self._known
        self._next_at = self._clock() + self._interval


@contextmanager
def reporting(group: Group) -> Iterator[Reporter]:
    """A reporter for one training run: the master's is heard, the others' say nothing."""
    reporter = Reporter(write_line if group.is_master else discard)
    try:
        yield reporter
    finally:
        reporter.close()


def write_line(progress: Progress) -> None:
    """Writes the report in one call, so that no other output can break its line."""
    sys.stdout.write(progress.line())
    sys.stdout.flush()


def discard(_progress: Progress) -> None:
    """Says nothing."""
