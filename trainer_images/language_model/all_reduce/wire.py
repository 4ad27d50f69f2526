"""Messages between two processes of a group, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor


@dataclass
class Sent:
    """What this process has sent."""

    bytes: int = 0
    messages: int = 0


class Wire:
    """The way from this process to others of a process group, or to some of them under numbers of their own.

    Nothing is sent for an empty tensor: both ends know the size of what goes between them. A peer that is
    gone, or silent for the group's timeout, raises the RuntimeError of torch.distributed.
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
        """How many processes it connects."""
        return len(self._members)

    @property
    def rank(self) -> int:
        """The number of this process among them."""
        return self._members.index(dist.get_rank(self._group))

    def among(self, members: Sequence[int]) -> "Wire":
        """The wire between some of these processes, numbered anew in this order; it counts into this one."""
        return Wire(self._group, [self._members[member] for member in members], self.sent)

    def send(self, tensor: Tensor, to: int) -> None:
        """Sends a contiguous tensor, and returns when it may be changed again."""
        self._do(self._sending(tensor, to))

    def receive(self, tensor: Tensor, source: int) -> None:
        """Fills a contiguous tensor with the next message of `source`."""
        self._do(self._receiving(tensor, source))

    def exchange(self, outgoing: Tensor, to: int, incoming: Tensor, source: int) -> None:
        """Sends one tensor and fills another at the same time, so that a circle of processes can do it."""
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
