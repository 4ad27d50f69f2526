"""A parameter server and its workers in one process, in an order that the test chooses."""

from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from language_model.parameter_server import flat
from language_model.parameter_server.server import ParameterServer, Update
from language_model.parameter_server.synchrony import Rule
from torch import Tensor, nn

RATE = 0.05
SHARE = 4
"""The number of examples in a worker's batch."""
UPDATES = 12
"""The number of updates of the groups in programs/parameter_server.py."""
SERVED: dict[str, dict[str, str]] = {
    "synchronous": {},
    "backup_workers": {"BACKUP_WORKERS": "1"},
    "speculative": {},
    "softsync": {"SOFTSYNC": "2"},
    "asynchronous": {},
    "delay_compensated": {},
}
"""Additional parameters of the language model for each synchrony."""


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)


def loss_on(model: nn.Module, batch: Tensor) -> Tensor:
    difference: Tensor = model(batch) - batch[:, :2].sin()
    return difference.square().mean()


def batch_of(worker: int, number: int) -> Tensor:
    """Return the batch `number` of a worker. Its batches are numbered from 0."""
    chance = torch.Generator().manual_seed(1000 * worker + number)
    return torch.randn(SHARE, 5, generator=chance, dtype=torch.float64)


def single_process(batches: Iterable[Tensor]) -> Tensor:
    """Return the weights after training on these batches without a server."""
    model = build()
    optimizer = optimizer_of(model)
    for batch in batches:
        optimizer.zero_grad()
        torch.autograd.backward(loss_on(model, batch))
        optimizer.step()
    return flat.weights_of(model)


def global_batch(workers: int, number: int) -> Tensor:
    return torch.cat([batch_of(worker, number) for worker in range(1, workers + 1)])


class Play:
    """A server with workers, which are numbered from 1."""

    def __init__(
        self,
        rule: Rule,
        workers: int,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        loss: Callable[[nn.Module, int, int], Tensor] | None = None,
    ) -> None:
        self.model = model or build()
        self.server = ParameterServer(self.model, optimizer or optimizer_of(self.model), rule, lambda _: RATE)
        self._loss = loss or (lambda model, worker, number: loss_on(model, batch_of(worker, number)))
        self._done = dict.fromkeys(range(1, workers + 1), 0)
        self._held = {worker: self._hand_out(worker) for worker in self._done}
        self.updates: list[Update] = []

    @property
    def weights(self) -> Tensor:
        return flat.weights_of(self.model)

    @property
    def gradient_applied(self) -> Tensor:
        """The gradient that the last update gave to the optimizer."""
        return flat.gradient_of(self.model)

    def push(self, *order: int) -> None:
        """Push a gradient of each worker, in this order. Each worker must have weights."""
        for worker in order:
            gradient, loss = self.gradient(worker)
            del self._held[worker]
            self._done[worker] += 1
            update, ready = self.server.take(worker, gradient, loss)
            self.updates += [update] if update else []
            self._held |= {free: self._hand_out(free) for free in ready}

    @property
    def busy(self) -> list[int]:
        """The workers that have weights."""
        return sorted(self._held)

    def _hand_out(self, worker: int) -> tuple[Tensor, int, int]:
        """Return the weights that a worker gets, their version, and the share of the batch whose gradient
        it is to compute.
        """
        weights = self.server.hand_out(worker)
        return weights, self.server.version, self.server.share_of(worker)

    def gradient(self, worker: int) -> tuple[Tensor, float]:
        """Return the gradient that this worker pushes next, and its loss."""
        model = deepcopy(self.model)
        weights, version, share = self._held[worker]
        flat.set_weights(model, weights)
        model.zero_grad()
        number, count = (worker, self._done[worker]) if share < 0 else (share + 1, version)
        loss = self._loss(model, number, count)
        torch.autograd.backward(loss)
        return flat.gradient_of(model), loss.item()
