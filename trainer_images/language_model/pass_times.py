"""Measures the passes of a pipeline: the CPU time of each micro-batch in each stage.

`trainctl plot --timeline` draws them from the file that is published with the model. The CPU time of a pass
is that of the thread that computes it. So it includes neither waiting for other ranks, nor waiting for
processors that other processes use. On a GPU, the CPU time would be the time to start kernels, so passes on
GPUs are not measured.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

from language_model.layout import Layout

FILE = "timeline.json"
UNFLUSHED_STEPS = 12
"""The number of steps in the timeline of a pipeline without flushes: one step would not show the schedule."""
MOST_PASSES = 10_000
"""The largest number of passes, over all ranks, for which there is a timeline."""


class Pass(NamedTuple):
    """One pass of one micro-batch through one stage. Micro-batches and stages count from 0."""

    is_forward: bool
    stage: int
    micro_batch: int


Seconds = dict[Pass, float]


class PassTimes:
    """The CPU seconds of the passes of this process, in the order of their start.

    The time of a pass is its shortest time in all steps, because other processes can only make it longer:
    they displace data from caches, and on a virtual machine they may take the processor unnoticed.
    """

    def __init__(self, layout: Layout) -> None:
        self._micro_batches = layout.micro_batches
        self._last: deque[Seconds] = deque(maxlen=_steps_in(layout))
        self._least: Seconds = {}
        self._now: Seconds | None = None
        self.steps = 0
        """The number of measured steps."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measure the passes in the block as one step. Passes outside of such a block are not measured."""
        now: Seconds = {}
        self._now = now
        try:
            yield
        finally:
            self._now = None
        for each, seconds in now.items():
            place = self._place_of(each)
            self._least[place] = min(seconds, self._least.get(place, seconds))
        self._last.append(now)
        self.steps += 1

    @contextmanager
    def measuring(self, is_forward: bool, stage: int, micro_batch: int) -> Iterator[None]:
        """Measure the block as a pass. If a pass has several blocks (layers and loss), their times add up.

        Without flushes, the numbering of micro-batches must continue from step to step.
        """
        began = time.thread_time()
        yield
        if self._now is not None:
            done = Pass(is_forward, stage, micro_batch)
            self._now[done] = self._now.get(done, 0.0) + time.thread_time() - began

    def including(self, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a wrapped loss function, whose time is added to the time of the forward pass before it."""

        def timed(*arguments: Any) -> Tensor:
            last = next(reversed(self._now), None) if self._now else None
            if last is None:
                return loss(*arguments)
            with self.measuring(*last):
                return loss(*arguments)

        return timed

    def least(self) -> Seconds:
        """Return the passes of the last step, each with its shortest time in all steps so far.

        Without flushes, these are the passes of the last UNFLUSHED_STEPS steps.
        """
        return {each: self._least[self._place_of(each)] for step in self._last for each in step}

    def _place_of(self, each: Pass) -> Pass:
        """Return the pass of the first step that corresponds to this pass."""
        return each._replace(micro_batch=each.micro_batch % self._micro_batches)


class MeasuredStage(PipelineStage):
    """A stage that measures its passes."""

    def __init__(self, times: PassTimes, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._times = times

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        """Compute and measure a forward pass."""
        with self._times.measuring(True, self.stage_index, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **options)

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        """Compute and measure a backward pass."""
        with self._times.measuring(False, self.stage_index, bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, *arguments, **options)


def is_flushed(layout: Layout) -> bool:
    """Return whether all passes of a step end before the passes of the next step begin."""
    return not layout.is_asynchronous


def _steps_in(layout: Layout) -> int:
    """Return the number of steps in a timeline."""
    return 1 if is_flushed(layout) else UNFLUSHED_STEPS


def are_measured(layout: Layout, device_type: str) -> bool:
    """Return whether passes are measured: only on CPUs, in a pipeline with at most MOST_PASSES passes."""
    passes = 2 * layout.stages * layout.micro_batches * _steps_in(layout)
    return layout.pipeline > 1 and device_type == "cpu" and passes <= MOST_PASSES


def gather(
    times: PassTimes, layout: Layout, ranks: dist.ProcessGroup, device: torch.device
) -> dict[str, Any] | None:
    """Return the content of FILE; None if no pass was measured. Every process of `ranks` must call this."""
    if not times.steps or not are_measured(layout, device.type):
        return None
    found: list[Seconds] = [{}] * layout.pipeline
    dist.all_gather_object(found, times.least(), ranks)
    return timeline(layout, found, times.steps)


def timeline(layout: Layout, ranks: Sequence[Seconds], steps: int) -> dict[str, Any]:
    """Return the content of FILE. `ranks` has the passes of each pipeline rank, in the order of the ranks.

    The timeline has the last step if `is_flushed`, else the last UNFLUSHED_STEPS steps.
    """
    return {
        "schedule": str(layout.schedule),
        "ranks": layout.pipeline,
        "stages": layout.stages,
        "micro_batches": layout.micro_batches,
        "flushed": is_flushed(layout),
        "steps": steps,
        "passes": [
            [
                {
                    "kind": "forward" if each.is_forward else "backward",
                    "stage": each.stage,
                    "micro_batch": each.micro_batch,
                    "seconds": seconds,
                }
                for each, seconds in passes.items()
            ]
            for passes in ranks
        ],
    }
