"""Sends weights and gradients between a server (rank 0) and its workers.

A worker gets the version of the weights and the weights. It sends its gradient with the loss after the last
element. Every wait is bounded by the time-out of the group, and the loss of a process is noticed at once.
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
"""Sent instead of a version after the last update."""


class Arrival(NamedTuple):
    """A received gradient."""

    worker: int
    gradient: Tensor
    loss: float


class ServerTransport:
    """The server's side: answers workers one by one, and takes gradients in the order of their arrival."""

    def __init__(self, template: Tensor, group: dist.ProcessGroup | None = None) -> None:
        self._template = template
        """A vector of the size and type of the weights."""
        self._group = group
        self._arrived: queue.SimpleQueue[Future[Arrival]] = queue.SimpleQueue()
        self.computing: set[int] = set()
        """The workers that compute a gradient."""

    @property
    def workers(self) -> range:
        """The ranks of all workers."""
        return range(SERVER + 1, dist.get_world_size(self._group))

    def send(self, worker: int, version: int, weights: Tensor) -> None:
        """Send weights to a waiting worker, and start to wait for its gradient."""
        self._send(worker, torch.tensor([version]))
        self._send(worker, weights)
        self.computing.add(worker)
        background.start(lambda: self._receive(worker)).add_done_callback(self._arrived.put)

    def next(self) -> Arrival:
        """Wait for the next gradient. Raises GroupError if a worker is gone or silent for too long."""
        arrival = self._arrived.get().result()
        self.computing.remove(arrival.worker)
        return arrival

    def end(self, worker: int) -> None:
        """Tell a waiting worker that the training has ended."""
        self._send(worker, torch.tensor([_END]))

    def _send(self, worker: int, message: Tensor) -> None:
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


class WorkerTransport:
    """The worker's side: receives weights and sends gradients."""

    def __init__(self, template: Tensor, group: dist.ProcessGroup | None = None) -> None:
        self._weights = torch.empty_like(template)
        self._group = group

    def weights(self) -> tuple[int, Tensor] | None:
        """Wait for the next weights and their version. Returns None at the end.

        Raises GroupError if the server is gone or silent for too long.
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
        """Send the gradient and the loss for the last weights."""
        try:
            dist.send(torch.cat([gradient, gradient.new_tensor([loss])]), group=self._group, group_dst=SERVER)
        except RuntimeError as error:
            raise _lost("the parameter server", error) from error


def _lost(peer: str, error: RuntimeError) -> GroupError:
    return GroupError(f"{peer} is gone or does not answer: {str(error).partition(chr(10))[0]}")
