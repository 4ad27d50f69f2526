"""The messages between workers, servers and standbys."""

from enum import IntEnum
from typing import NamedTuple, Protocol

from torch import Tensor


class Kind(IntEnum):
    """The kinds of messages. For each kind, its numbers are listed in parentheses, then its tensor.

    The gradients of a worker are numbered from 1.
    """

    GRADIENT = 0
    """Worker to server: (gradient's number), the shard's gradient and the loss. Number 0 has no tensor: it
    asks for the worker's first weights."""
    WEIGHTS = 1
    """Server to worker: (number of the worker's last gradient, version, share of the batch), the shard's
    weights for the next gradient. With share -1, the worker takes its own next share."""
    HAVE = 2
    """Server to leader: (worker, gradient's number, bytes sent, bytes received). The gradient has arrived."""
    TAKE = 3
    """Leader to server: (worker, gradient's number). The gradient is the next to take."""
    COPY = 4
    """Server to its standby: (worker, gradient's number), the gradient that the server takes next."""
    COPIED = 5
    """Standby to its server: the standby has taken the copy."""
    HERE = 6
    """Server to leader, if one of them has just taken over: (number of ordered gradients that the server
    knows)."""
    ASK = 7
    """Leader to server: the leader needs the state after the gradients ordered so far."""
    STATE = 8
    """Server to leader: (bytes sent, bytes received), the shard's state."""
    BYE = 9
    """The last message of a process to another."""


class Message(NamedTuple):
    """A message of one process to another."""

    kind: Kind
    numbers: tuple[int, ...] = ()
    tensor: Tensor | None = None


class Post(Protocol):
    """Delivers messages. Those from one process to another arrive in the order in which they are sent."""

    def send(self, peer: int, message: Message) -> None:
        """Send a message. If the peer is lost, the message is lost, too."""
        ...

    @property
    def traffic(self) -> tuple[int, int]:
        """The bytes that this process has sent and received, without those of STATE messages."""
        ...
