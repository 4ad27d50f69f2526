"""Reports how far training has come, and what it has made."""

import importlib.util
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer_kit.report_sinks import Artifact, NullSink, Progress, Sink, StdoutSink

if TYPE_CHECKING:  # it needs PyTorch, which a program that publishes a model need not have
    from trainer_kit.group import Group


class Reporter:
    """Collects progress, and passes it on to a sink."""

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
        """Report what is new. A metric that is not finite is left out."""
        counts = {"step": step, "total_steps": total_steps, "epoch": epoch, "total_epochs": total_epochs}
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._known = replace(
            self._known,
            metrics={**self._known.metrics, **finite},
            **{name: count for name, count in counts.items() if count is not None},
        )
        self._sink.progress(self._known, finite)

    def artifact(self, name: str, uri: str, *, kind: str = "", size: int = 0, sha256: str = "") -> None:
        """Report something that was made; a second one of the same name replaces the first."""
        self._sink.artifact(Artifact(name, uri, kind, size, sha256))

    def close(self) -> None:
        """Send the reports that wait."""
        self._sink.close()


@contextmanager
def reporting(group: "Group") -> Iterator[Reporter]:
    """Gives a reporter for one training run; only the master's reports are sent."""
    reporter = Reporter(_sink() if group.is_master else NullSink())
    try:
        yield reporter
    finally:
        reporter.close()


def _sink() -> Sink:
    address, token = os.environ.get("REPORT_ADDRESS"), os.environ.get("REPORT_TOKEN")
    if address and token and importlib.util.find_spec("grpc"):
        from trainer_kit.grpc_sink import GrpcSink  # an image without gRPC has no use for it

        return GrpcSink(address, token)
    return StdoutSink()
