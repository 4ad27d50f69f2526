"""Sends bytes from rank to rank, and counts them."""

import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer_kit.group import Group


class Peers:
    """The ranks of the group. If one is gone, torch.distributed raises RuntimeError."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.bytes_sent = 0

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self.group.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.group.size

    def packed(self, content: bytes | memoryview) -> Tensor:
        """Return the bytes as a tensor that can be sent."""
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.group.device)

    def room(self, size: int) -> Tensor:
        """Return an uninitialized tensor of `size` bytes."""
        return torch.empty(size, dtype=torch.uint8, device=self.group.device)

    def send(self, content: Tensor, to: int) -> None:
        """Send the bytes of a tensor, and return when the tensor may be changed."""
        dist.send(content, to)
        self.bytes_sent += content.numel()

    def receive(self, room: Tensor, source: int) -> Tensor:
        """Fill the tensor `room` with the next bytes from the rank `source`, and return the tensor."""
        dist.recv(room, source)
        return room

    def pass_on(self, outgoing: Tensor | None, incoming: Tensor | None) -> None:
        """Send `outgoing` to the next rank, and at the same time receive `incoming` from the rank before.

        None means that there is nothing to send or to receive. Because both happen at the same time, a ring
        of ranks cannot deadlock.
        """
        operations = []
        if outgoing is not None:
            operations.append(dist.P2POp(dist.isend, outgoing, (self.rank + 1) % self.size))
            self.bytes_sent += outgoing.numel()
        if incoming is not None:
            operations.append(dist.P2POp(dist.irecv, incoming, (self.rank - 1) % self.size))
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()

    def everywhere(self, value: Any) -> Any:
        """Return rank 0's value in all ranks. It must consist of JSON values. The other ranks pass None."""
        if self.size == 1:
            return value
        content = json.dumps(value).encode() if self.rank == 0 else b""
        [length] = self.group.total(len(content))
        packed = self.packed(content) if self.rank == 0 else self.room(int(length))
        dist.broadcast(packed, 0)
        return json.loads(bytes(bytes_of(packed)))

    def of_each(self, digest: bytes) -> list[bytes]:
        """Return the digests that all ranks pass, by rank. They must have the same length."""
        if self.size == 1:
            return [digest]
        rooms = [self.room(len(digest)) for _ in range(self.size)]
        dist.all_gather(rooms, self.packed(digest))
        return [bytes(bytes_of(room)) for room in rooms]


def bytes_of(content: Tensor) -> memoryview:
    """Return the bytes of a tensor, without a copy if it is on the CPU."""
    return content.cpu().numpy().data
