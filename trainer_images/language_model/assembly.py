"""Builds the model, its optimizer and its passes for a layout."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor.parallel import loss_parallel
from torch.optim import Optimizer
from trainer_kit.group import Group

from language_model import activation_offload, data_parallel, layer_offload, memory, tensor, zero
from language_model.choices import Offload, Precision
from language_model.data import Batch
from language_model.dropout import Position
from language_model.group_scaler import GroupScaler
from language_model.host import Host
from language_model.layout import Layout, uses_ddp
from language_model.local_weights import LocalWeights
from language_model.mesh import DATA, PIPELINE, TENSOR, Mesh
from language_model.model import LanguageModel, build
from language_model.passes import Passes, WholeDepth
from language_model.pipedream import PipeDream
from language_model.pipeline import Pipelined, stages_of
from language_model.stepping import Stepper


@dataclass(frozen=True)
class Learner:
    """Takes the training steps of one process."""

    model: LanguageModel
    """This process's part of the model. Its weights have the names of the whole model."""
    optimizer: Optimizer
    _passes: Passes | PipeDream
    _stepper: Stepper
    _mesh: Mesh
    host: Host
    local_weights: LocalWeights | None
    """The schedule by which ranks average their weights. None: they do not average weights."""

    def learn(self, batch: Batch, learning_rate: float, step: int) -> float:
        """Take one step with the batch of the whole group. Return this process's share of the mean loss.

        The shares of all processes add up to the mean loss. `step` is the number of the step, from 1, which
        determines the masks of dropout. In an asynchronous layout, the step may happen later: in another
        call, or in `flush`.
        """
        share = self._own(batch)
        position = Position(step, self._mesh.rank(DATA) * len(share.tokens))
        if isinstance(self._passes, PipeDream):
            return self._share(self._passes.learn(share, learning_rate, position))
        loss = self.find_gradients(share, position)
        if self.local_weights is not None:
            self.local_weights.begin_step()
        self._stepper.step(learning_rate)
        if self.local_weights is not None:
            self.local_weights.stepped(step)
        return self._share(loss)

    def step_alone(self, learning_rate: float) -> None:
        """Step with the gradients of this process. `flush` makes the weights of all ranks equal again."""
        self._stepper.step(learning_rate)
        if self.local_weights is not None:
            self.local_weights.changed()

    def flush(self) -> None:
        """In an asynchronous layout, take the steps of all batches in flight. Average local weights, if any.

        Every process must call this after the same batch.
        """
        if isinstance(self._passes, PipeDream):
            self._passes.flush()
        if self.local_weights is not None:
            self.local_weights.average()

    @property
    def scaler(self) -> GroupScaler:
        """The scale of the loss, which is 1 unless PRECISION is fp16."""
        return self._stepper.scaler

    @property
    def stage(self) -> PipeDream | None:
        """The stage of an asynchronous pipeline; None for other layouts."""
        return self._passes if isinstance(self._passes, PipeDream) else None

    def find_gradients(self, share: Batch, position: Position) -> float | None:
        """Compute the gradients of this process's share of a batch.

        Return the mean loss of the share, or None if only another process knows it.
        """
        assert not isinstance(self._passes, PipeDream)  # PipeDream steps by itself
        self.optimizer.zero_grad()
        return self._passes.learn(share, position)

    def judge(self, batch: Batch) -> float:
        """Return this process's share of the mean loss of a batch, without a step."""
        return self._share(self._passes.judge(self._own(batch)))

    def timeline(self) -> dict[str, Any] | None:
        """Return the measured passes of the pipeline (see `pass_times`); None if none were measured.

        Every process must call this.
        """
        return self._passes.timeline() if isinstance(self._passes, Pipelined | PipeDream) else None

    def _own(self, batch: Batch) -> Batch:
        """Return this data rank's share of the whole group's batch."""
        ranks, rank = self._mesh.size(DATA), self._mesh.rank(DATA)
        return Batch(*(half.chunk(ranks)[rank] for half in batch))

    def _share(self, loss: float | None) -> float:
        """Scale a loss so that the sum over all processes is the mean over the data ranks.

        All tensor ranks of a data rank know the same loss.
        """
        return 0.0 if loss is None else loss / (self._mesh.size(DATA) * self._mesh.size(TENSOR))


def assemble(layout: Layout, group: Group) -> Learner:
    """Build the learner of this process. Every process of the group must call this."""
    mesh = Mesh.of(layout, group)
    ranges = [layout.layers_of_stages[stage] for stage in stages_of(mesh.rank(PIPELINE), layout)]
    place = torch.device("cpu") if layout.is_layer_by_layer else group.device
    model = build(layout, [layer for layers in ranges for layer in layers], place)
    parts = [model.part(layers, layout) for layers in ranges]
    memory.recompute(model, layout)
    if layout.tensor > 1:
        tensor.cut(model, layout, mesh)
    if zero.uses_fully_shard(layout):
        zero.shard(parts, layout, mesh)
    host = Host(group.device)
    if layout.is_layer_by_layer:
        host.keep(model.parameters())
    optimizer = zero.optimizer_of(model, layout, mesh)
    memory.offload_state(zero.own_share(optimizer), layout, host)
    scaler = GroupScaler(group, enabled=layout.precision is Precision.FP16)
    stepper = Stepper(model, optimizer, scaler, layout, mesh)
    passes = _passes(parts, stepper, group, host)
    local = None
    if layout.averages_weights:
        local = LocalWeights(model, optimizer, mesh, layout.local_steps, layout.slow_momentum)
    return Learner(model, optimizer, passes, stepper, mesh, host, local)


def _passes(parts: list[LanguageModel], stepper: Stepper, group: Group, host: Host) -> Passes | PipeDream:
    model, layout, mesh = stepper.model, stepper.layout, stepper.mesh

    @contextmanager
    def context() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(memory.autocast(layout, group.device))
            if layout.loss_parallel:
                stack.enter_context(loss_parallel())
            if layout.offload is Offload.ACTIVATIONS and torch.is_grad_enabled():
                stack.enter_context(activation_offload.offloaded(model, host))
            yield

    if layout.is_asynchronous:
        return PipeDream(model, layout, mesh, group.device, context, stepper.step)
    if layout.pipeline > 1:
        return Pipelined(parts, layout, mesh, group.device, context, stepper.scaler)
    if layout.is_layer_by_layer:
        return layer_offload.LayerByLayer(model, layout, mesh, host, context)
    [whole] = parts
    grouped = data_parallel.replicate(model, layout, group) if uses_ddp(layout) else whole
    return WholeDepth(grouped, layout.micro_batches, context, model.random_state, stepper.scaler.scale)
