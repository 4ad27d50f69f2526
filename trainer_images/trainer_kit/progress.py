"""Reports progress, metrics and artifacts."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer_kit import environment, outside, steps, traffic
from trainer_kit.report_sinks import Artifact, NullSink, Progress, Sink, StdoutSink

if TYPE_CHECKING:  # trainer_kit.group needs PyTorch, which a program that only publishes a model may lack
    from trainer_kit.group import Group

_MOST_PROCESSES = 100_000


class Reporter:
    """Collects progress and passes it to a sink. Each step also counts as a sign of life (`steps`).

    The series `step_seconds` and `waiting_seconds` are about the process that reports for the group: the
    master, or a rank that has called `lead`. They have values only for steps in which this process has waited
    for others.
    """

    def __init__(self, sink: Sink, of_leader: Sink | None = None) -> None:
        self._sink = sink
        self._of_leader = of_leader or sink
        self._known = Progress()

    def lead(self) -> None:
        """Report for the group from now on, because the group's master is lost."""
        self._sink = self._of_leader

    def report(
        self,
        *,
        step: int | None = None,
        total_steps: int | None = None,
        epoch: int | None = None,
        total_epochs: int | None = None,
        examples: int | None = None,
        **metrics: float,
    ) -> None:
        """Report new values. A metric may be NaN or infinite: the service shows it.

        `examples` is the number of examples of all ranks in this step. Divided by the step's time, it
        becomes `examples_per_second`.
        """
        if step is not None:
            steps.OF_PROCESS.step(step)
            if step != self._known.step and (last := steps.OF_PROCESS.last()):
                if last[1] > 0:
                    metrics.setdefault("step_seconds", last[0])
                    metrics.setdefault("waiting_seconds", last[1])
                if examples is not None and last[0] > 0:
                    metrics.setdefault("examples_per_second", examples / last[0])
            if (sent := traffic.OF_PROCESS.of_steps(step)) is not None:
                metrics.setdefault("gradient_sent_bytes", sent)
        counts = {"step": step, "total_steps": total_steps, "epoch": epoch, "total_epochs": total_epochs}
        self._known = replace(
            self._known,
            metrics={**self._known.metrics, **metrics},
            **{name: count for name, count in counts.items() if count is not None},
        )
        self._sink.progress(self._known, metrics)

    def artifact(self, name: str, uri: str, *, kind: str = "", size: int = 0, sha256: str = "") -> None:
        """Report an artifact. A second one with the same name replaces the first."""
        self._sink.artifact(Artifact(name, uri, kind, size, sha256))

    def close(self) -> None:
        """Send the waiting reports."""
        self._sink.close()


@contextmanager
def reporting(group: "Group") -> Iterator[Reporter]:
    """Yield a reporter for one training run, which takes place in the block.

    Only the master, and a rank that has called `lead`, send progress, metrics and artifacts. If reports are
    sent by calls, every rank reports its position, so the service notices a rank that falls behind (`steps`).
    From the start of the block on, the process can also be inspected from outside (`outside`).
    """
    outside.answer()
    sink = _sink(_process_of(group.rank))
    reporter = Reporter(sink if group.is_master else NullSink(), of_leader=sink)
    _in_use.append(reporter)
    try:
        yield reporter
    finally:
        _in_use.remove(reporter)
        sink.close()


def _process_of(rank: int) -> int:
    """Return the number of this process for the service, which counts processes instance by instance.

    In an elastic group, torchrun changes the ranks at each rendezvous, so the rank is not this number.
    """
    instance = environment.integer("PET_NODE_RANK", default=-1, at_least=-1, at_most=_MOST_PROCESSES)
    if instance < 0:
        return rank
    local_size = environment.integer("LOCAL_WORLD_SIZE", default=1, at_least=1, at_most=_MOST_PROCESSES)
    local = environment.integer("LOCAL_RANK", default=0, at_least=0, at_most=local_size - 1)
    return instance * local_size + local


def present() -> Reporter:
    """Return the reporter of the innermost `reporting` block; outside any block, one that prints."""
    return _in_use[-1] if _in_use else Reporter(StdoutSink())


_in_use: list[Reporter] = []


def _sink(rank: int) -> Sink:
    address, token = os.environ.get("REPORT_ADDRESS"), os.environ.get("REPORT_TOKEN")
    if address and token and importlib.util.find_spec("grpc"):
        from trainer_kit.grpc_sink import GrpcSink  # needs gRPC, which an image may lack

        ca = os.environ.get("REPORT_CA", "")
        return GrpcSink(address, token, ca=ca, rank=rank, steps=steps.OF_PROCESS)
    return StdoutSink()
