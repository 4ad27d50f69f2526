"""Weights and gradients on their way between a server (rank 0) and its workers.

Each message is as long as the model: weights to a worker, after their version, and a gradient back, with
its loss behind the last element. Every wait is bounded by the timeout of the group, and a
process that is gone is noticed at once.
"""

import queue
from concurrent.futures import Future
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from trainer_kit import background
from trainer_kit.errors import GroupError

SERVER = 0
_END = -1
"""In place of a version: there will be no more weights."""


class Arrival(NamedTuple):
    """A gradient that has come."""

    worker: int
    gradient: Tensor
    loss: float


class ServersPost:
    """The server's side: it answers workers one by one, and takes gradients in the order of their arrival."""

    def __init__(self, template: Tensor, group: dist.ProcessGroup | None = None) -> None:
        self._template = template
        """A vector of the size and kind of the weights."""
        self._group = group
        self._arrived: queue.SimpleQueue[Future[Arrival]] = queue.SimpleQueue()
        self.computing: set[int] = set()
        """The workers who have weights, and whose gradient is to come."""

    @property
    def workers(self) -> range:
        """All of them."""
        return range(SERVER + 1, dist.get_world_size(self._group))

    def send(self, worker: int, version: int, weights: Tensor) -> None:
        """Sends weights to a worker who waits for them, and begins to wait for its gradient."""
        self._tell(worker, torch.tensor([version]))
        self._tell(worker, weights)
        self.computing.add(worker)
        background.start(lambda: self._receive(worker)).add_done_callback(self._arrived.put)

    def next(self) -> Arrival:
        """The next gradient that arrives. Raises GroupError when a worker is gone, or silent for too long."""
        arrival = self._arrived.get().result()
        self.computing.remove(arrival.worker)
        return arrival

    def end(self, worker: int) -> None:
        """Tells a worker who waits for weights that there will be none."""
        self._tell(worker, torch.tensor([_END]))

    def _tell(self, worker: int, message: Tensor) -> None:
        try:
            dist.send(message, group=self._group, group_dst=worker)
        except RuntimeError as error:
            raise _lost(f"worker {worker}", error) from error

    def _receive(self, worker: int) -> Arrival:
        message = self._template.new_empty(self._template.numel() + 1)
        try:
            dist.recv(message, group=self._group, group_src=worker)
        except RuntimeError as error:
            raise _lost(f"worker {worker}", error) from error
        return Arrival(worker, message[:-1], message[-1].item())


class WorkersPost:
    """A worker's side: weights in, a gradient out."""

    def __init__(self, template: Tensor, group: dist.ProcessGroup | None = None) -> None:
        self._weights = torch.empty_like(template)
        self._group = group

    def weights(self) -> tuple[int, Tensor] | None:
        """The next weights and their version, or None at the end.

        Raises GroupError when the server is gone or silent for too long.
        """
        version = torch.tensor([_END])
        try:
            dist.recv(version, group=self._group, group_src=SERVER)
            if version.item() == _END:
                return None
            dist.recv(self._weights, group=self._group, group_src=SERVER)
        except RuntimeError as error:
            raise _lost("the parameter server", error) from error
        return int(version.item()), self._weights

    def send(self, gradient: Tensor, loss: float) -> None:
        """Sends a gradient of the weights that came last, and the loss there."""
        try:
            dist.send(torch.cat([gradient, gradient.new_tensor([loss])]), group=self._group, group_dst=SERVER)
        except RuntimeError as error:
            raise _lost("the parameter server", error) from error


def _lost(who: str, error: RuntimeError) -> GroupError:
    return GroupError(f"{who} is gone or does not answer: {str(error).partition(chr(10))[0]}")
