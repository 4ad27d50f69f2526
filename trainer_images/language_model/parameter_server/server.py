"""The weights, the optimizer and the rule for updates, without communication.

The results depend only on the order of the calls, so a test can replay any order.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from language_model.parameter_server import flat
from language_model.parameter_server.synchrony import Rule


class Push(NamedTuple):
    """A gradient for the next update."""

    worker: int
    """The worker that computed the gradient; with a rule that speculates, the share of the batch instead."""
    gradient: Tensor
    loss: float
    staleness: int


@dataclass(frozen=True)
class Update:
    """One update of the weights."""

    number: int
    """The number of the update, from 1."""
    loss: float
    """The mean of the losses that came with the update's gradients."""
    staleness: tuple[int, ...]
    """The staleness of each gradient of the update."""


class Taken(NamedTuple):
    """The result of taking a gradient."""

    update: Update | None
    """The update that the gradient completed; None if it completed none."""
    ready: tuple[int, ...]
    """The workers that may get the weights now."""


class ParameterServer:
    """One model that is updated with the gradients of workers."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        rule: Rule,
        learning_rate: Callable[[int], float],
        version: int = 0,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self.rule = rule
        self._learning_rate = learning_rate
        """Returns the learning rate of an update, given the update's number, from 1."""
        self._pushes: list[Push] = []
        self._read: dict[int, int] = {}
        """The version of the weights that each worker has."""
        self._weights_read: dict[int, Tensor] = {}
        """The weights that each worker has, if the rule needs them."""
        self.version = version
        """The number of updates of the weights."""
        self._shares: dict[int, tuple[int, int]] = {}
        """For each worker, the version of its weights and the share that it computes, if the rule
        speculates."""
        self._idle: list[int] = []
        """The workers that wait for a share."""
        self.staleness: Counter[int] = Counter()
        """The number of applied gradients by staleness."""
        self.dropped = 0
        """The number of gradients that were not applied: they were too late, or another worker had already
        computed the same share."""

    def hand_out(self, worker: int) -> Tensor:
        """Return the current weights, for the next gradient of `worker`."""
        weights = flat.weights_of(self._model)
        self._read[worker] = self.version
        if self.rule.speculates_after and worker not in self._shares:  # `_assigned` gives later shares
            share = self._next_share()
            assert share is not None
            self._shares[worker] = self.version, share
        if self.rule.compensation:
            self._weights_read[worker] = weights
        return weights

    def share_of(self, worker: int) -> int:
        """Return the share of the batch that a worker computes, or -1 for the worker's own next share."""
        _, share = self._shares.get(worker, (0, -1))
        return share

    def take(self, worker: int, gradient: Tensor, loss: float) -> Taken:
        """Take a gradient and its loss, computed from the weights that `worker` was last given."""
        staleness = self.version - self._read[worker]
        if self.rule.speculates_after:
            return self._take_share(worker, gradient, loss)
        if self.rule.in_step and staleness:
            self.dropped += 1
            return Taken(None, (worker,))
        self._pushes.append(Push(worker, self._corrected(worker, gradient, staleness), loss, staleness))
        is_enough = len(self._pushes) == self.rule.gradients
        waiting = tuple(push.worker for push in self._pushes) if is_enough else ()
        return Taken(
            update=self._update() if is_enough else None, ready=waiting if self.rule.in_step else (worker,)
        )

    def _take_share(self, worker: int, gradient: Tensor, loss: float) -> Taken:
        version, share = self._shares.pop(worker)
        if version < self.version or any(push.worker == share for push in self._pushes):
            self.dropped += 1
        else:
            self._pushes.append(Push(share, gradient, loss, 0))
        self._idle.append(worker)
        is_enough = len(self._pushes) == self.rule.gradients
        return Taken(update=self._update() if is_enough else None, ready=tuple(self._assigned()))

    def _assigned(self) -> Iterator[int]:
        """Give idle workers shares, and yield these workers."""
        while self._idle and (share := self._next_share()) is not None:
            worker = self._idle.pop(0)
            self._shares[worker] = self.version, share
            yield worker

    def _next_share(self) -> int | None:
        """Return the share that the fewest workers compute, among the shares without a gradient.

        Return None if idle workers must wait.
        """
        done = {push.worker for push in self._pushes}
        copies = Counter(share for version, share in self._shares.values() if version == self.version)
        left = [share for share in range(self.rule.gradients) if share not in done]
        share = min(left, key=lambda share: copies[share], default=None)
        may_repeat = len(done) >= self.rule.speculates_after
        return share if share is not None and (may_repeat or not copies[share]) else None

    def _corrected(self, worker: int, gradient: Tensor, staleness: int) -> Tensor:
        if self.rule.weakens_stale:
            return gradient / max(1, staleness)
        if self.rule.compensation:
            drift = flat.weights_of(self._model) - self._weights_read[worker]
            return gradient + self.rule.compensation * gradient * gradient * drift
        return gradient

    def _update(self) -> Update:
        # A rounded sum depends on the order of its terms. A fixed order makes runs reproducible.
        pushes = sorted(self._pushes, key=lambda push: push.worker)
        self._pushes.clear()
        self.version += 1
        self.staleness.update(push.staleness for push in pushes)
        flat.set_gradient(self._model, torch.stack([push.gradient for push in pushes]).mean(dim=0))
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate(self.version)
        self._optimizer.step()
        return Update(
            self.version,
            loss=sum(push.loss for push in pushes) / len(pushes),
            staleness=tuple(push.staleness for push in pushes),
        )
