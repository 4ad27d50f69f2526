"""Delivers messages between processes over gloo, and notices the loss of each peer independently.

One thread for each peer receives messages. The connections of gloo fail independently, so the connections to
other peers stay when a peer dies.
"""

import queue
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from trainer_kit import background
from trainer_kit.errors import GroupError

from language_model.parameter_server.messages import Kind, Message

_NUMBERS = 4
_UNBOUNDED = timedelta(days=3650)
"""The time-out of gloo, which is never reached. If an exchange timed out, gloo would close all connections
of the group. But a silent peer is no error while other peers send messages. So Mailbox has a time-out of
its own."""


def new_group() -> dist.ProcessGroup:
    """Create the group for messages. Every process must call this."""
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_UNBOUNDED)
    return group


def send(tensor: Tensor, peer: int, group: dist.ProcessGroup, patience: float) -> None:
    """Send a tensor. Raises GroupError if the peer is lost, or does not receive it in `patience` seconds."""
    _wait(lambda: dist.isend(tensor, group=group, group_dst=peer), peer, patience)


def receive(tensor: Tensor, peer: int, group: dist.ProcessGroup, patience: float) -> None:
    """Receive a tensor. Raises GroupError if the peer is lost, or silent for `patience` seconds."""
    _wait(lambda: dist.irecv(tensor, group=group, group_src=peer), peer, patience)


def _wait(begin: Callable[[], dist.Work | None], peer: int, patience: float) -> None:
    try:
        if (work := begin()) is not None:
            work.wait(timedelta(seconds=patience))
    except RuntimeError as error:
        raise GroupError(f"rank {peer} is gone or does not answer") from error


class Mailbox:
    """The messages to and from the peers of this process."""

    def __init__(
        self, peers: Iterable[int], dtype: torch.dtype, group: dist.ProcessGroup, patience: float
    ) -> None:
        self._dtype = dtype
        self._group = group
        self._patience = patience
        """The limit in seconds for the sending of a tensor, and for the silence of all peers."""
        self._arrived: queue.SimpleQueue[tuple[int, Message | None]] = queue.SimpleQueue()
        self._peers = sorted(peers)
        self._open = set(self._peers)
        """The peers that are not lost and have not sent BYE."""
        self.sent: Counter[Kind] = Counter()
        """The bytes that were sent, by kind of message."""
        self.received: Counter[Kind] = Counter()
        for peer in self._peers:
            background.start(lambda peer=peer: self._listen(peer))  # type: ignore[misc]

    @property
    def traffic(self) -> tuple[int, int]:
        """The bytes that this process has sent and received, without those of STATE messages."""
        return tuple(count.total() - count[Kind.STATE] for count in (self.sent, self.received))  # type: ignore[return-value]

    def send(self, peer: int, message: Message) -> None:
        """Send a message. If the peer is lost, so is the message, and `next` reports the lost peer."""
        size = -1 if message.tensor is None else message.tensor.numel()
        numbers = [message.kind, size, *message.numbers]
        header = torch.tensor(numbers + [0] * (_NUMBERS + 2 - len(numbers)))
        try:
            send(header, peer, self._group, self._patience)
            if message.tensor is not None:
                send(message.tensor.contiguous(), peer, self._group, self._patience)
        except GroupError:
            return
        self.sent[message.kind] += _size_of(header, message.tensor)

    def next(self) -> tuple[int, Message | None]:
        """Return the next message with its sender. If a peer is lost, return the peer and None.

        Raises GroupError if all peers are silent for too long.
        """
        try:
            peer, message = self._arrived.get(timeout=self._patience)
        except queue.Empty:
            raise GroupError(f"no message has come for {self._patience:g} seconds") from None
        if message is None or message.kind is Kind.BYE:
            self._open.discard(peer)
        if message is not None:
            self.received[message.kind] += 8 * (_NUMBERS + 2) + _size_of(message.tensor)
        return peer, message

    def leave(self, first: int | None = None) -> None:
        """Send BYE to all peers, and to `first` before all others."""
        for peer in sorted(self._peers, key=lambda peer: peer != first):
            self.send(peer, Message(Kind.BYE))

    def close(self, first: int | None = None) -> None:
        """Send BYE to all peers, and to `first` before all others.

        Wait until each peer has sent BYE or is lost.
        """
        self.leave(first)
        while self._open:
            self.next()

    def _listen(self, peer: int) -> None:
        kind = None
        while kind is not Kind.BYE:
            header = torch.zeros(_NUMBERS + 2, dtype=torch.int64)
            try:
                dist.recv(header, group=self._group, group_src=peer)
                number, size, *numbers = header.tolist()
                kind, tensor = Kind(number), None
                if size >= 0:
                    tensor = torch.empty(size, dtype=self._dtype)
                    dist.recv(tensor, group=self._group, group_src=peer)
            except RuntimeError:
                self._arrived.put((peer, None))
                return
            self._arrived.put((peer, Message(kind, tuple(numbers), tensor)))


def _size_of(*tensors: Tensor | None) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
