"""The weights, the optimizer and the rule by which gradients change them; it sends nothing.

Its results depend only on the order of the calls, so a test can play any order.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from language_model.parameter_server import flat
from language_model.parameter_server.synchrony import Rule


class Push(NamedTuple):
    """A gradient that counts."""

    worker: int
    gradient: Tensor
    loss: float
    staleness: int


@dataclass(frozen=True)
class Update:
    """One change of the weights."""

    number: int
    """From 1."""
    loss: float
    """The mean of the workers' own."""
    staleness: tuple[int, ...]
    """Of each gradient that it took."""


class Taken(NamedTuple):
    """What became of a gradient."""

    update: Update | None
    """The change that it brought about, if any."""
    ready: tuple[int, ...]
    """The workers who may have the weights now."""


class ParameterServer:
    """One model, changed by the gradients of others."""

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
        self._rule = rule
        self._learning_rate = learning_rate
        """Of update number n, from 1."""
        self._pushes: list[Push] = []
        self._read: dict[int, int] = {}
        """The version of the weights that each worker has."""
        self._weights_read: dict[int, Tensor] = {}
        """Those weights themselves, where the rule asks for them."""
        self.version = version
        """How many updates the weights have had."""
        self.staleness: Counter[int] = Counter()
        """How many gradients of each staleness were applied."""
        self.dropped = 0
        """Gradients that came too late for their step."""

    def hand_out(self, worker: int) -> Tensor:
        """The weights as they are, from which `worker` will compute its next gradient."""
        weights = flat.weights_of(self._model)
        self._read[worker] = self.version
        if self._rule.compensation:
            self._weights_read[worker] = weights
        return weights

    def take(self, worker: int, gradient: Tensor, loss: float) -> Taken:
        """Takes a gradient of the weights that `worker` was handed last, and its loss."""
        staleness = self.version - self._read[worker]
        if self._rule.in_step and staleness:
            self.dropped += 1
            return Taken(None, (worker,))
        self._pushes.append(Push(worker, self._corrected(worker, gradient, staleness), loss, staleness))
        is_enough = len(self._pushes) == self._rule.gradients
        waiting = tuple(push.worker for push in self._pushes) if is_enough else ()
        return Taken(
            update=self._update() if is_enough else None, ready=waiting if self._rule.in_step else (worker,)
        )

    def _corrected(self, worker: int, gradient: Tensor, staleness: int) -> Tensor:
        if self._rule.weakens_stale:
            return gradient / max(1, staleness)
        if self._rule.compensation:
            drift = flat.weights_of(self._model) - self._weights_read[worker]
            return gradient + self._rule.compensation * gradient * gradient * drift
        return gradient

    def _update(self) -> Update:
        # In an order of their own, not of their arrival: sums are rounded, and a run can be repeated.
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
