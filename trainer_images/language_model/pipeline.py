"""Pipeline parallel: each rank has some of the layers, and micro-batches pass from rank to rank.

Y. Huang et al., "GPipe", NeurIPS 2019; D. Narayanan et al., "PipeDream", SOSP 2019 (1F1B), and "Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021 (interleaved).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from language_model.choices import Schedule
from language_model.data import Batch
from language_model.layout import Layout
from language_model.mesh import PIPELINE, Mesh
from language_model.model import LanguageModel, loss_of
from language_model.passes import Context, number_in


def stages_of(rank: int, layout: Layout) -> list[int]:
    """Return the stages of a pipeline rank: one, or several in an interleaved pipeline."""
    return list(range(rank, layout.stages, layout.pipeline))


class Pipelined:
    """The passes of a pipeline's stages, in the order of SCHEDULE."""

    def __init__(
        self,
        parts: Sequence[LanguageModel],
        layout: Layout,
        mesh: Mesh,
        device: torch.device,
        context: Context,
    ) -> None:
        ranks = mesh.along(PIPELINE)
        numbers = stages_of(ranks.get_local_rank(), layout)
        stages = [
            PipelineStage(part, number, layout.stages, device, group=ranks.get_group())
            for number, part in zip(numbers, parts, strict=True)
        ]
        self._has_first, self._has_last = 0 in numbers, layout.stages - 1 in numbers
        self._context = context
        scales = (
            not layout.has_flat_buckets
        )  # they scale gradients themselves, and leave none to the schedule
        self._schedule: Any = (
            ScheduleInterleaved1F1B(list(stages), layout.micro_batches, loss_of, scale_grads=scales)
            if layout.is_interleaved
            else _SINGLE[layout.schedule](stages[0], layout.micro_batches, loss_of, scale_grads=scales)
        )

    def learn(self, batch: Batch) -> float | None:
        return self._go(self._schedule.step, batch)

    def judge(self, batch: Batch) -> float | None:
        return self._go(self._schedule.eval, batch)

    def _go(self, schedule: Any, batch: Batch) -> float | None:
        losses: list[Tensor] = []
        inputs = (batch.tokens,) if self._has_first else ()
        options = {"target": batch.targets, "losses": losses} if self._has_last else {}
        with self._context():
            schedule(*inputs, **options)
        return sum(map(number_in, losses)) / len(losses) if self._has_last else None


_SINGLE = {
    Schedule.GPIPE: ScheduleGPipe,
    Schedule.ONE_FORWARD_ONE_BACKWARD: Schedule1F1B,
}
