"""The forward and backward passes of a step if each process has all layers of the model."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from language_model.data import Batch
from language_model.dropout import Position, RandomState
from language_model.model import loss_of

Context = Callable[[], AbstractContextManager[object]]
"""Returns a context for the passes, for example one in which they compute in fewer bits."""


class Passes(Protocol):
    """The passes of a strategy for this data rank's share of a batch."""

    def learn(self, batch: Batch, position: Position) -> float | None:
        """Compute the gradients of the mean loss of the share `batch`, and return this loss.

        DistributedDataParallel, fully_shard, flat buckets and OFFLOAD=layers also average the gradients over
        the data ranks. With other layouts, `Stepper` averages them later, if necessary.

        `position` is the position of the share in the training, on which random numbers depend. The result is
        None if only other ranks have the loss.
        """
        ...

    def judge(self, batch: Batch) -> float | None:
        """Return the mean loss of the share `batch`, without gradients; None if only other ranks have it."""
        ...


class WholeDepth:
    """Processes micro-batches one by one, and accumulates their gradients."""

    def __init__(
        self,
        model: nn.Module,
        micro_batches: int,
        context: Context,
        random_state: RandomState,
        scale: Callable[[Tensor], Tensor] = lambda loss: loss,
    ) -> None:
        self._model = model
        self._micro_batches = micro_batches
        self._context = context
        self._random_state = random_state
        self._scale = scale
        """Scales a loss up, so that its gradients are not zero in fp16."""

    def learn(self, batch: Batch, position: Position) -> float:
        total = 0.0
        parts = list(zip(*(half.chunk(self._micro_batches) for half in batch), strict=True))
        for number, (tokens, targets) in enumerate(parts):
            at = self._random_state.at(position.later(number * len(tokens)))
            with self._context(), at, self._holding_back(is_last=number == len(parts) - 1):
                loss = loss_of(self._model(tokens), targets) / len(parts)
                torch.autograd.backward(self._scale(loss))
            total += number_in(loss)
        return total

    @torch.no_grad()
    def judge(self, batch: Batch) -> float:
        with self._context():
            return number_in(loss_of(self._model(batch.tokens), batch.targets))

    def _holding_back(self, *, is_last: bool) -> AbstractContextManager[object]:
        """With DistributedDataParallel, send gradients only once: their sum, with the last micro-batch.

        fully_shard sends gradients with each micro-batch: keeping them whole would need the memory that
        sharding saves.
        """
        if isinstance(self._model, DistributedDataParallel) and not is_last:
            return self._model.no_sync()
        return nullcontext()


def number_in(loss: Tensor) -> float:
    """Return a loss as a number. The loss may be a DTensor."""
    return (loss.full_tensor() if isinstance(loss, DTensor) else loss).item()
