"""The forward and backward passes of a step, where each process has the whole depth of the model."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from language_model.data import Batch
from language_model.model import loss_of

Context = Callable[[], AbstractContextManager[object]]
"""What the passes are done in: in fewer bits, or with a loss that is cut."""


class Passes(Protocol):
    """What a strategy does with this data rank's share of a batch."""

    def learn(self, batch: Batch) -> float | None:
        """Leaves the gradients of the mean loss over all data ranks, and gives that of the share itself.

        None where the loss is known to other ranks only.
        """
        ...

    def judge(self, batch: Batch) -> float | None:
        """The mean loss of the share, with no gradients."""
        ...


class WholeDepth:
    """Micro-batches one after the other; their gradients add up, and are averaged with the last."""

    def __init__(
        self,
        model: nn.Module,
        micro_batches: int,
        context: Context,
        scale: Callable[[Tensor], Tensor] = lambda loss: loss,
    ) -> None:
        self._model = model
        self._micro_batches = micro_batches
        self._context = context
        self._scale = scale
        """Makes a loss so large that its gradients are no zeros in few bits."""

    def learn(self, batch: Batch) -> float:
        total = 0.0
        parts = list(zip(*(half.chunk(self._micro_batches) for half in batch), strict=True))
        for number, (tokens, targets) in enumerate(parts, start=1):
            with self._context(), self._holding_back(is_last=number == len(parts)):
                loss = loss_of(self._model(tokens), targets) / len(parts)
                torch.autograd.backward(self._scale(loss))
            total += number_in(loss)
        return total

    @torch.no_grad()
    def judge(self, batch: Batch) -> float:
        with self._context():
            return number_in(loss_of(self._model(batch.tokens), batch.targets))

    def _holding_back(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Where gradients are averaged whole, only the sums of all micro-batches are sent.

        Those that are sharded are sent with each micro-batch: to keep them whole until the last is what
        the sharding is there to avoid.
        """
        if isinstance(self._model, DistributedDataParallel) and not is_last:
            return self._model.no_sync()
        return nullcontext()


def number_in(loss: Tensor) -> float:
    """The loss as a number, be it cut or not."""
    return (loss.full_tensor() if isinstance(loss, DTensor) else loss).item()
