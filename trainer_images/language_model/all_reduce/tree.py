"""A binary tree: sums go up to rank 0, and the sum of all goes down.

Each process has at most two children, so no process sends more than 3 S bytes for a tensor of S bytes. There
are about 2 log2 n messages in sequence, instead of 2 (n - 1) in a ring.
"""

import torch
from torch import Tensor

from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place."""
    received = torch.empty_like(tensor)
    for child in children(wire.rank, wire.size):
        wire.receive(received, child)
        tensor += received
    if wire.rank > 0:
        parent = (wire.rank - 1) // 2
        wire.send(tensor, parent)
        wire.receive(tensor, parent)
    for child in children(wire.rank, wire.size):
        wire.send(tensor, child)


def children(rank: int, size: int) -> range:
    """Return the children of `rank` in the complete binary tree with root 0."""
    return range(2 * rank + 1, min(2 * rank + 3, size))
