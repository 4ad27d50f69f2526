"""Messages between the server (rank 0) and its workers: keys, and a row of numbers for each key.

A worker asks for the weights of some keys (PULL), or sends the gradients for some keys (PUSH). A key takes
four bytes, as does each number of a row. Every wait is bounded by GROUP_TIMEOUT.
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from trainer_kit.errors import GroupError

from hashed_questions.sparse_gradient import Rows

SERVER = 0
KEY_BYTES = NUMBER_BYTES = 4


class Kind(IntEnum):
    """The kind of a request."""

    PULL = 0
    ANCHOR = 1
    """A pull of the weights at the beginning of the epoch."""
    PUSH = 2
    WHOLE = 3
    """A push of a worker's part of the gradient of all examples."""
    END = 4


@dataclass(frozen=True)
class Request:
    """A message of a worker."""

    kind: Kind
    step: int
    keys: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    rows: Rows | None = None
    loss: float = 0.0


class Wire:
    """One end of the connections. It counts the bytes of keys and rows, and the messages that carry them.

    Every method raises GroupError if the peer is lost, or silent for GROUP_TIMEOUT.
    """

    def __init__(self, classes: int, group: dist.ProcessGroup | None) -> None:
        self._classes = classes
        self._group = group
        self.bytes = 0
        self.messages = 0

    def ask(self, request: Request) -> None:
        """Send a request to the server."""
        header = torch.tensor([request.kind, request.step, len(request.keys)])
        self._send(SERVER, header)
        self._send_values(SERVER, torch.from_numpy(request.keys.astype(np.int32)))
        if request.rows is not None:
            self._send_values(SERVER, torch.from_numpy(request.rows))
            self._send(SERVER, torch.tensor([request.loss], dtype=torch.float64))

    def asked(self, worker: int) -> Request:
        """Wait for the next request of a worker."""
        header = torch.zeros(3, dtype=torch.int64)
        self._receive(worker, header)
        kind, step, count = header.tolist()
        keys = torch.zeros(count, dtype=torch.int32)
        self._receive_values(worker, keys)
        rows, loss = None, torch.zeros(1, dtype=torch.float64)
        if kind in (Kind.PUSH, Kind.WHOLE):
            rows = self.rows(worker, count)
            self._receive(worker, loss)
        return Request(Kind(kind), step, keys.numpy().astype(np.int64), rows, loss.item())

    def answer(self, worker: int, rows: Rows) -> None:
        """Send weights to a worker."""
        self._send_values(worker, torch.from_numpy(rows))

    def rows(self, peer: int, count: int) -> Rows:
        """Wait for `count` rows from a peer, and return them."""
        found = torch.zeros(count, self._classes)
        self._receive_values(peer, found)
        return found.numpy()

    def _send_values(self, peer: int, values: Tensor) -> None:
        if values.numel():
            self._send(peer, values.contiguous())
            self._count(values)

    def _receive_values(self, peer: int, into: Tensor) -> None:
        if into.numel():
            self._receive(peer, into)
            self._count(into)

    def _count(self, values: Tensor) -> None:
        self.bytes += values.nbytes
        self.messages += 1

    def _send(self, peer: int, values: Tensor) -> None:
        try:
            dist.send(values, group=self._group, group_dst=peer)
        except RuntimeError as error:
            raise _lost(peer, error) from error

    def _receive(self, peer: int, into: Tensor) -> None:
        try:
            dist.recv(into, group=self._group, group_src=peer)
        except RuntimeError as error:
            raise _lost(peer, error) from error


def _lost(peer: int, error: RuntimeError) -> GroupError:
    who = "the server" if peer == SERVER else f"worker {peer}"
    return GroupError(f"{who} is gone or does not answer: {str(error).partition(chr(10))[0]}")
