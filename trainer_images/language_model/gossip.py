"""Averages weights between pairs of ranks, without a server and without waiting for all ranks.

X. Lian, W. Zhang, C. Zhang and J. Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent",
ICML 2018. As in the paper, ranks are active (even) or passive (odd). Only active ranks ask a peer for an
average. Only passive ranks answer, and they do so at any time. So a rank never waits for a rank that is
itself waiting, or for a slow gradient.
"""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from trainer_kit import background
from trainer_kit.errors import GroupError

from language_model.parameter_server import flat

_ASKS, _LEAVES = 1, 0


def actives(size: int) -> range:
    """Return the ranks that ask for averages."""
    return range(0, size, 2)


def passives(size: int) -> range:
    """Return the ranks that answer."""
    return range(1, size, 2)


class Gossip:
    """The weights of this rank between two averages over the group.

    A gradient is computed from a copy of the weights. Meanwhile, averages with other ranks may change the
    weights. As in the paper, the gradient is then applied to the averaged weights.
    """

    def __init__(self, model: nn.Module, group: dist.ProcessGroup, seed: int) -> None:
        """`group` must use gloo, because weights are sent from the host.

        `seed` chooses the peers of this rank.
        """
        self._model = model
        self._group = group
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._dice = random.Random(f"{seed}/{self._rank}")  # noqa: S311  # no secret
        self._weights = flat.weights_of(model)
        self._lock = threading.Lock()
        self._answering: list[Future[None]] = []
        self.asked = 0
        """The number of averages for which this rank has asked."""
        self.sent_bytes = 0
        """The bytes of weights that this rank has sent."""

    @property
    def is_active(self) -> bool:
        """Whether this rank asks for averages."""
        return self._rank in actives(self._size)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """If this rank is passive, average with ranks that ask during the block.

        After the block, the model has the weights of this rank. Every rank must call this. Passive ranks
        leave the block after all active ranks. Raises GroupError if a peer is lost.
        """
        if not self.is_active:
            self._answering = [
                background.start(lambda peer=peer: self._answer(peer))  # type: ignore[misc]
                for peer in actives(self._size)
            ]
        yield
        if self.is_active:
            for peer in passives(self._size):
                self._send(peer, torch.tensor([_LEAVES]))
        for answering in self._answering:
            answering.result()
        flat.set_weights(self._model, self._weights)

    def read(self) -> None:
        """Copy the current weights into the model, so that a gradient can be computed from them."""
        with self._lock:
            flat.set_weights(self._model, self._weights)

    def exchange(self) -> None:
        """If this rank is active, average its weights with those of one peer.

        Active and passive ranks raise GroupError if a peer is lost.
        """
        for answering in self._answering:
            if answering.done():
                answering.result()
        if not self.is_active or self._size == 1:
            return
        peer = self._dice.choice(passives(self._size))
        theirs = torch.empty_like(self._weights)
        self._send(peer, torch.tensor([_ASKS]), self._weights)
        self._receive(peer, theirs)
        self._weights = (self._weights + theirs) / 2
        self.asked += 1

    def step(self, step: Callable[[], object]) -> None:
        """Set the model to the current weights, and call `step`, which applies the gradients to them."""
        with self._lock:
            flat.set_weights(self._model, self._weights)
            step()
            self._weights = flat.weights_of(self._model)

    def _answer(self, peer: int) -> None:
        """Average with an active rank whenever that rank asks, until it leaves."""
        kind, theirs = torch.tensor([_LEAVES]), torch.empty_like(self._weights)
        while True:
            self._receive(peer, kind)
            if kind.item() == _LEAVES:
                return
            self._receive(peer, theirs)
            with self._lock:  # `_weights` must not change between the two lines
                own = self._weights
                self._weights = (own + theirs) / 2
            self._send(peer, own)

    def _send(self, peer: int, *messages: Tensor) -> None:
        try:
            for message in messages:
                dist.send(message, group=self._group, group_dst=peer)
        except RuntimeError as error:
            raise _lost(peer, error) from error
        with self._lock:  # several threads send
            self.sent_bytes += sum(message.nbytes for message in messages if message.is_floating_point())

    def _receive(self, peer: int, into: Tensor) -> None:
        try:
            dist.recv(into, group=self._group, group_src=peer)
        except RuntimeError as error:
            raise _lost(peer, error) from error


def _lost(peer: int, error: RuntimeError) -> GroupError:
    return GroupError(f"rank {peer} is gone or does not answer: {str(error).partition(chr(10))[0]}")
