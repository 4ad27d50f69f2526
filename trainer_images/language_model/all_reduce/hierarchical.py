"""A two-level all-reduce (Jia et al., arXiv:1807.11205, 2018): within nodes, then between their leaders.

It suits fast links within a node and slow links between nodes. Of n processes on k nodes, only the k leaders
use the slow links, in 2 (k - 1) steps. A ring of all processes would need 2 (n - 1) steps. The leader of a
node is its first process. Within a node, the tensor goes to the leader and back along a binomial tree.
Alternatively, as in the paper's rings, it goes in chunks from neighbour to neighbour. Then no process sends
more than twice the tensor's size within the node.
"""

import torch
from torch import Tensor

from language_model.all_reduce import ring
from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire, node_size: int, *, has_rings: bool = False) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place.

    A node has `node_size` consecutive processes. The last node may be smaller. With `has_rings`, the tensor
    goes from neighbour to neighbour in a node, not along a tree.
    """
    flat = tensor.view(-1)
    leaders = range(0, wire.size, node_size)
    leader = wire.rank - wire.rank % node_size
    node = wire.among(range(leader, min(leader + node_size, wire.size)))
    reduce, broadcast = (_reduce_in_ring, _broadcast_in_ring) if has_rings else (_reduce, _broadcast)
    reduce(flat, node)
    if wire.rank == leader:
        ring.all_reduce(flat, wire.among(leaders))
    broadcast(flat, node)


def _reduce(tensor: Tensor, wire: Wire) -> None:
    """Compute the sum in rank 0 of the wire, along a tree. The tensors of other ranks are overwritten."""
    received = torch.empty_like(tensor)
    for child in children(wire.rank, wire.size):
        wire.receive(received, child)
        tensor += received
    if wire.rank > 0:
        wire.send(tensor, _parent(wire.rank))


def _broadcast(tensor: Tensor, wire: Wire) -> None:
    if wire.rank > 0:
        wire.receive(tensor, _parent(wire.rank))
    for child in reversed(children(wire.rank, wire.size)):  # the largest subtree first: it takes longest
        wire.send(tensor, child)


def _reduce_in_ring(tensor: Tensor, wire: Wire) -> None:
    """Compute the sum in rank 0 of the wire: chunks go from the last rank to rank 0; each rank adds its own.

    While a rank sends a chunk, its neighbour with the next higher rank sends the next chunk.
    """
    chunks = tensor.tensor_split(wire.size)
    received = torch.empty_like(chunks[0])
    for chunk in chunks:
        if wire.rank + 1 < wire.size:
            part = received[: chunk.numel()]
            wire.receive(part, wire.rank + 1)
            chunk += part
        if wire.rank > 0:
            wire.send(chunk, wire.rank - 1)


def _broadcast_in_ring(tensor: Tensor, wire: Wire) -> None:
    for chunk in tensor.tensor_split(wire.size):
        if wire.rank > 0:
            wire.receive(chunk, wire.rank - 1)
        if wire.rank + 1 < wire.size:
            wire.send(chunk, wire.rank + 1)


def children(rank: int, size: int) -> list[int]:
    """Return the children of `rank` in a binomial tree with root 0, the smallest subtree first."""
    bits = range((rank & -rank).bit_length() - 1 if rank else size.bit_length())
    return [rank + (1 << bit) for bit in bits if rank + (1 << bit) < size]


def _parent(rank: int) -> int:
    return rank & (rank - 1)  # clears the lowest bit that is set
