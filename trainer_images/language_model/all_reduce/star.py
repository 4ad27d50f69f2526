"""A star: rank 0 receives all tensors, sums them, and sends the sum to all ranks.

It is the simplest algorithm. The busiest rank sends and receives (n - 1) S bytes for a tensor of S bytes, so
a star suits small tensors and few processes.
"""

import torch
from torch import Tensor

from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place."""
    if wire.rank > 0:
        wire.send(tensor, 0)
        wire.receive(tensor, 0)
        return
    received = torch.empty_like(tensor)
    for rank in range(1, wire.size):
        wire.receive(received, rank)
        tensor += received
    for rank in range(1, wire.size):
        wire.send(tensor, rank)
