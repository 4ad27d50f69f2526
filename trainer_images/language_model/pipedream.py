"""PipeDream: an asynchronous pipeline, which is not flushed at the end of a step.

D. Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019. Whole batches
follow each other through the stages. In the steady state, a stage alternates between a forward pass and a
backward pass (1F1B), and steps after each backward pass.

Stage i of k has k-i batches in flight, so it applies gradients that were computed with its weights of k-1-i
steps ago. The stage keeps its weights from that time (weight stashing), so that both passes of a batch use
the same weights. Different stages may use different versions for the same batch. The paper has an option
that prevents this difference (vertical sync); it is not implemented here.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trainer_kit.errors import TrainingError

from language_model import pass_times
from language_model.data import Batch
from language_model.dropout import Position
from language_model.layout import Layout
from language_model.mesh import DATA, PIPELINE, Mesh
from language_model.model import LanguageModel, loss_of
from language_model.pass_times import PassTimes
from language_model.passes import Context
from language_model.weight_versions import Version, WeightVersions


@dataclass(frozen=True)
class InFlight:
    """A batch between its two passes."""

    version: Version
    received: Tensor | None
    """The output of the previous stage, or None in the first stage."""
    result: Tensor
    """The output of this stage, or the loss in the last one."""
    learning_rate: float


@dataclass(frozen=True)
class Update:
    """A step of this stage."""

    number: int
    """The number of the batch, from 1."""
    loss: float
    """The mean loss of the batch over the data ranks."""


class PipeDream:
    """One stage: `learn` starts a batch, and steps with the oldest one in flight."""

    def __init__(
        self,
        model: LanguageModel,
        layout: Layout,
        mesh: Mesh,
        device: torch.device,
        context: Context,
        step: Callable[[float], None],
    ) -> None:
        """`step` updates the weights with their gradients, at the given learning rate."""
        self._model = model
        self._layout = layout
        self._mesh = mesh
        self._device = device
        self._context = context
        self._step = step
        self.number = mesh.rank(PIPELINE)
        """The number of the stage, from 0."""
        self._last = layout.pipeline - 1
        # Messages of each direction need their own group: in one group, NCCL would make the messages of one
        # direction wait for those of the other.
        self._forth, self._back = Line.of(mesh), Line.of(mesh)
        self._ranks = mesh.along(PIPELINE).get_group()
        self._times = PassTimes(layout)
        self._in_flight: deque[InFlight] = deque()
        self._losses: deque[float] = deque()
        self.versions = WeightVersions(model)
        self._steps: deque[Update] = deque()
        self.staleness: Counter[int] = Counter()
        """The number of this stage's steps by staleness."""

    def learn(self, batch: Batch, learning_rate: float, position: Position) -> float | None:
        """Start this data rank's share of a batch. If enough batches are in flight, step with the oldest one.

        Returns the loss of the share in the last stage, and None in the others. Raises TrainingError if the
        loss of the oldest batch is not finite.
        """
        with self._times.step():
            self.go_forward(batch, learning_rate, position)
            if len(self._in_flight) > self._last - self.number:
                self.go_back()
        return self._losses.popleft() if self._losses else None

    def timeline(self) -> dict[str, Any] | None:
        """Return the measured passes of all ranks of this pipeline; None if there are none.

        Every process must call this.
        """
        return pass_times.gather(self._times, self._layout, self._ranks, self._device)

    def steps_taken(self) -> Iterator[Update]:
        """Yield the steps of this stage since the last call."""
        while self._steps:
            yield self._steps.popleft()

    def flush(self) -> None:
        """Step with all batches in flight. Every stage must call this after the same batch."""
        while self._in_flight:
            self.go_back()
        self._forth.settle()
        self._back.settle()

    @torch.no_grad()
    def judge(self, batch: Batch) -> float | None:
        """Return the mean loss of the share in the last stage, None in the others. Call `flush` before."""
        with self._context():
            result = self._pass(batch, self._receive(batch))
        if self.number == self._last:
            return result.item()
        self._forth.send(result, self.number + 1)
        self._forth.settle()
        return None

    def go_forward(self, batch: Batch, learning_rate: float, position: Position) -> None:
        """Do the forward pass of the next batch with the current weights. Keep them for the backward pass."""
        received, version = self._receive(batch), self.versions.hold()
        number = self.versions.updates + len(self._in_flight)
        random_numbers = self._model.random_state.at(position)
        with (
            self._times.measuring(True, self.number, number),
            version.in_use(),
            random_numbers,
            self._context(),
        ):
            result = self._pass(batch, received)
        if self.number < self._last:
            self._forth.send(result.detach(), self.number + 1)
        else:
            self._losses.append(result.item())
        self._in_flight.append(InFlight(version, received, result, learning_rate))

    def go_back(self) -> None:
        """Do the backward pass of the oldest batch in flight, and step the current weights.

        The pass uses the weights of the batch's forward pass.
        """
        oldest = self._in_flight.popleft()
        gradient, loss = self._receive_gradient(oldest)
        with self._times.measuring(False, self.number, self.versions.updates), oldest.version.in_use():
            torch.autograd.backward(oldest.result, gradient)
        if oldest.received is not None:
            assert oldest.received.grad is not None
            # The loss goes back with the gradient, so that the first stage can report it.
            message = torch.cat([oldest.received.grad.flatten(), loss.view(1)])
            self._back.send(message, self.number - 1)
        update = Update(self.versions.updates + 1, loss.item())
        if not math.isfinite(update.loss):
            self._back.settle()  # so that the other stages can report the same error
            raise TrainingError(f"the loss is not finite in step {update.number}: try a smaller LR")
        self.staleness[self.versions.updates - oldest.version.number] += 1
        self.versions.take_gradients(oldest.version)
        self.versions.begin_update()
        self._step(oldest.learning_rate)
        self._steps.append(update)

    def _pass(self, batch: Batch, received: Tensor | None) -> Tensor:
        """Return the output of this stage, or the loss in the last one."""
        output: Tensor = self._model(batch.tokens if received is None else received)
        return loss_of(output, batch.targets) if self.number == self._last else output

    def _receive(self, batch: Batch) -> Tensor | None:
        """Receive the previous stage's output (examples, context, width). Return None in the first stage."""
        if self.number == 0:
            return None
        received = torch.empty(*batch.tokens.shape, self._layout.width, device=self._device)
        self._forth.receive(received, self.number - 1)
        return received.requires_grad_(torch.is_grad_enabled())

    def _receive_gradient(self, oldest: InFlight) -> tuple[Tensor | None, Tensor]:
        """Receive the gradient of this stage's output, and the mean loss over the data ranks.

        The last stage computes this loss itself; there, the gradient is None.
        """
        if self.number == self._last:
            loss = oldest.result.detach().clone()
            if self._mesh.size(DATA) > 1:
                dist.all_reduce(loss, group=self._mesh.along(DATA).get_group())
            return None, loss / self._mesh.size(DATA)
        message = torch.empty(oldest.result.numel() + 1, device=self._device)
        self._back.receive(message, self.number + 1)
        return message[:-1].view_as(oldest.result), message[-1]


class Line:
    """Messages between the stages of a data rank, in one direction."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._sent: deque[tuple[dist.Work, Tensor]] = deque()

    @classmethod
    def of(cls, mesh: Mesh) -> "Line":
        """Create the lines of all data ranks, and return the line of this process.

        Every process must call this.
        """
        return cls(mesh.new_group(PIPELINE))

    def send(self, tensor: Tensor, stage: int) -> None:
        """Start to send a tensor. It must not change until it has arrived."""
        work = dist.isend(tensor, group=self._group, group_dst=stage)
        assert work is not None
        self._sent.append((work, tensor))
        while len(self._sent) > self._group.size():  # so many cannot be in flight: the oldest has arrived
            self._sent.popleft()[0].wait()

    def receive(self, tensor: Tensor, stage: int) -> None:
        """Wait for the next tensor of a stage."""
        dist.recv(tensor, group=self._group, group_src=stage)

    def settle(self) -> None:
        """Wait until all sent tensors have arrived."""
        while self._sent:
            self._sent.popleft()[0].wait()
