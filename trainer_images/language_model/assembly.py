"""Builds the model, its optimizer and its passes for a layout."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch.distributed.tensor.parallel import loss_parallel
from torch.optim import Optimizer
from trainer_kit.group import Group

from language_model import data_parallel, memory, tensor, zero
from language_model.choices import Precision
from language_model.data import Batch
from language_model.layout import Layout, uses_ddp
from language_model.mesh import DATA, PIPELINE, Mesh
from language_model.model import LanguageModel, build
from language_model.passes import Passes, WholeDepth
from language_model.pipeline import Pipelined, stages_of


@dataclass(frozen=True)
class Learner:
    """Takes the training steps of one process."""

    model: LanguageModel
    """This process's part of the model. Its weights have the names of the whole model."""
    optimizer: Optimizer
    _passes: Passes
    _layout: Layout
    _mesh: Mesh
    _scaler: torch.amp.GradScaler

    def learn(self, batch: Batch, learning_rate: float) -> float:
        """Take one step with the batch of the whole group. Return this process's share of the mean loss."""
        loss = self.find_gradients(self._own(batch))
        layout = self._layout
        averages = uses_ddp(layout) or layout.is_sharded or layout.has_flat_buckets
        if self._mesh.size(DATA) > 1 and not averages:
            data_parallel.average_gradients(self.model, self._mesh)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self._scaler.step(self.optimizer)
        self._scaler.update()
        return self._share(loss)

    def find_gradients(self, share: Batch) -> float | None:
        """Compute the gradients of this process's share of a batch. Return its mean loss, if known here."""
        self.optimizer.zero_grad()
        return self._passes.learn(share)

    def judge(self, batch: Batch) -> float:
        """Return this process's share of the mean loss of a batch, without a step."""
        return self._share(self._passes.judge(self._own(batch)))

    def _own(self, batch: Batch) -> Batch:
        """Return this data rank's share of the batch."""
        ranks, rank = self._mesh.size(DATA), self._mesh.rank(DATA)
        return Batch(*(half.chunk(ranks)[rank] for half in batch))

    def _share(self, loss: float | None) -> float:
        """Scale a loss so that the sum over all processes is the mean over the data ranks.

        All tensor ranks of a data rank know the same loss.
        """
        return 0.0 if loss is None else loss / (self._layout.data * self._layout.tensor)


def assemble(layout: Layout, group: Group) -> Learner:
    """Build the learner of this process. Every process of the group must call this."""
    mesh = Mesh.of(layout, group)
    ranges = [layout.layers_of_stages[stage] for stage in stages_of(mesh.rank(PIPELINE), layout)]
    model = build(layout, [layer for layers in ranges for layer in layers], group.device)
    parts = [model.part(layers, layout) for layers in ranges]
    memory.recompute(model, layout)
    if layout.tensor > 1:
        tensor.cut(model, layout, mesh)
    if zero.uses_fully_shard(layout):
        zero.shard(parts, layout, mesh)
    optimizer = zero.optimizer_of(model, layout, mesh)
    memory.offload_state(zero.own_share(optimizer), layout)
    scaler = torch.amp.GradScaler(group.device.type, enabled=layout.precision is Precision.FP16)
    return Learner(model, optimizer, _passes(model, parts, layout, mesh, group, scaler), layout, mesh, scaler)


def _passes(
    model: LanguageModel,
    parts: list[LanguageModel],
    layout: Layout,
    mesh: Mesh,
    group: Group,
    scaler: torch.amp.GradScaler,
) -> Passes:
    @contextmanager
    def context() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(memory.autocast(layout, group.device))
            if layout.loss_parallel:
                stack.enter_context(loss_parallel())
            yield

    if layout.pipeline > 1:
        return Pipelined(parts, layout, mesh, group.device, context)
    [whole] = parts
    grouped = data_parallel.replicate(model, layout, group) if uses_ddp(layout) else whole
    return WholeDepth(grouped, layout.micro_batches, context, scaler.scale)
