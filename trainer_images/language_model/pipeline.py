"""Pipeline parallel: each rank has some of the layers, and micro-batches pass from rank to rank.

Y. Huang et al., "GPipe", NeurIPS 2019; D. Narayanan et al., "PipeDream", SOSP 2019 (1F1B), and "Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021 (interleaved).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from language_model import pass_times
from language_model.choices import Schedule
from language_model.data import Batch
from language_model.dropout import Position
from language_model.group_scaler import GroupScaler
from language_model.layout import Layout
from language_model.mesh import PIPELINE, Mesh
from language_model.model import LanguageModel, loss_of
from language_model.pass_times import MeasuredStage, PassTimes
from language_model.passes import Context, number_in


def stages_of(rank: int, layout: Layout) -> list[int]:
    """Return the stages of a pipeline rank: one, or several in an interleaved pipeline."""
    return list(range(rank, layout.stages, layout.pipeline))


class Stage(MeasuredStage):
    """A stage whose forward passes know the position of their micro-batch."""

    def __init__(self, times: PassTimes, part: LanguageModel, *arguments: Any, **options: Any) -> None:
        super().__init__(times, part, *arguments, **options)
        self._random_state = part.random_state
        self.positions: list[Position] = []
        """The positions of the micro-batches of the current step. Without them, dropout keeps all numbers."""

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        """Compute the forward pass of a micro-batch."""
        position = self.positions[fwd_chunk_id] if self.positions else None
        with self._random_state.at(position):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **options)


class Pipelined:
    """The passes of a pipeline's stages, in the order of SCHEDULE."""

    def __init__(
        self,
        parts: Sequence[LanguageModel],
        layout: Layout,
        mesh: Mesh,
        device: torch.device,
        context: Context,
        scaler: GroupScaler,
    ) -> None:
        ranks = mesh.along(PIPELINE)
        self._parts = dict(zip(stages_of(ranks.get_local_rank(), layout), parts, strict=True))
        self._has_first, self._has_last = 0 in self._parts, layout.stages - 1 in self._parts
        self._times, self._layout, self._ranks = PassTimes(layout), layout, ranks.get_group()
        self._context, self._device = context, device
        self._scaler = scaler
        self._examples = 0
        """The batch size for which the stages were made."""

    def _fit_stages(self, examples: int) -> None:
        """Make stages for batches of this size: at the start, when the batch grows, and for evaluation.

        Stages can exchange only tensors of the shapes of their first batch.
        """
        if examples == self._examples:
            return
        layout = self._layout
        stages = self._stages = [
            Stage(self._times, part, number, layout.stages, self._device, group=self._ranks)
            for number, part in self._parts.items()
        ]
        # Flat buckets take and scale the gradients, so the schedule must not scale them.
        scales = not layout.has_flat_buckets
        loss = self._times.including(self._loss_of)
        self._schedule: Any = (
            ScheduleInterleaved1F1B(list(stages), layout.micro_batches, loss, scale_grads=scales)
            if layout.is_interleaved
            else _SINGLE[layout.schedule](stages[0], layout.micro_batches, loss, scale_grads=scales)
        )
        self._examples = examples

    def learn(self, batch: Batch, position: Position) -> float | None:
        self._fit_stages(len(batch.tokens))
        part = len(batch.tokens) // self._layout.micro_batches
        for stage in self._stages:
            stage.positions = [position.later(part * number) for number in range(self._layout.micro_batches)]
        with self._times.step():
            return self._go(self._schedule.step, batch)

    def judge(self, batch: Batch) -> float | None:
        self._fit_stages(len(batch.tokens))
        for stage in self._stages:
            stage.positions = []
        return self._go(self._schedule.eval, batch)

    def timeline(self) -> dict[str, Any] | None:
        """Return the measured passes of all ranks of this pipeline; None if there are none.

        Every process must call this.
        """
        return pass_times.gather(self._times, self._layout, self._ranks, self._device)

    def _go(self, schedule: Any, batch: Batch) -> float | None:
        losses: list[Tensor] = []
        inputs = (batch.tokens,) if self._has_first else ()
        options = {"target": batch.targets, "losses": losses} if self._has_last else {}
        with self._context():
            schedule(*inputs, **options)
        scaled_up = len(losses) * self._scaler.get_scale()
        return sum(map(number_in, losses)) / scaled_up if self._has_last else None

    def _loss_of(self, scores: Tensor, targets: Tensor) -> Tensor:
        return self._scaler.scale(loss_of(scores, targets))


_SINGLE = {
    Schedule.NAIVE: ScheduleGPipe,  # with one micro-batch
    Schedule.GPIPE: ScheduleGPipe,
    Schedule.ONE_FORWARD_ONE_BACKWARD: Schedule1F1B,
}
