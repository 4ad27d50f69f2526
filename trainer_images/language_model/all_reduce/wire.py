"""Sends messages from one process of a group to another, and counts them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor


@dataclass
class Sent:
    """The traffic of this process."""

    bytes: int = 0
    messages: int = 0


class Wire:
    """Connects this process to the other processes of a group, or to some of them.

    The connected processes are numbered from 0. Nothing is sent for an empty tensor, because both ends know
    its size. If a peer is gone, or silent for the group's time-out, torch.distributed raises RuntimeError.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        members: Sequence[int] | None = None,
        sent: Sent | None = None,
    ) -> None:
        self._group = group
        self._members = range(dist.get_world_size(group)) if members is None else members
        self.sent = Sent() if sent is None else sent

    @property
    def size(self) -> int:
        """The number of connected processes."""
        return len(self._members)

    @property
    def rank(self) -> int:
        """The rank of this process among the connected ones."""
        return self._members.index(dist.get_rank(self._group))

    def among(self, members: Sequence[int]) -> "Wire":
        """Return a wire between some of the connected processes, with the same counter (`sent`).

        `members` has their ranks on this wire. On the new wire, they are numbered from 0 in the order of
        `members`.
        """
        return Wire(self._group, [self._members[member] for member in members], self.sent)

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a contiguous tensor. Return only once the caller may change it."""
        self._do(self._sending(tensor, to))

    def receive(self, tensor: Tensor, source: int) -> None:
        """Fill a contiguous tensor with the next message of `source`."""
        self._do(self._receiving(tensor, source))

    def exchange(self, outgoing: Tensor, to: int, incoming: Tensor, source: int) -> None:
        """Send one tensor and receive another concurrently, so that a ring of processes cannot deadlock."""
        self._do(self._sending(outgoing, to) + self._receiving(incoming, source))

    def _sending(self, tensor: Tensor, to: int) -> list[dist.P2POp]:
        if not tensor.numel():
            return []
        self.sent.bytes += tensor.nbytes
        self.sent.messages += 1
        return [dist.P2POp(dist.isend, tensor, group=self._group, group_peer=self._members[to])]

    def _receiving(self, tensor: Tensor, source: int) -> list[dist.P2POp]:
        if not tensor.numel():
            return []
        return [dist.P2POp(dist.irecv, tensor, group=self._group, group_peer=self._members[source])]

    def _do(self, operations: list[dist.P2POp]) -> None:
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
