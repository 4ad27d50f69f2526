"""The ring (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009): no process sends less.

Each process has two neighbours. The tensor is cut into as many chunks as there are processes; the sum of
each chunk travels once around and grows, then once more, and is copied.
"""

import torch
from torch import Tensor

from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire) -> None:
    """Sums a contiguous tensor over all processes of the wire, in place."""
    chunks = tensor.view(-1).tensor_split(wire.size)
    reduce_scatter(chunks, wire)
    all_gather(chunks, wire)


def reduce_scatter(chunks: tuple[Tensor, ...], wire: Wire) -> None:
    """Leaves the sum of chunk number r in the process of rank r; the other chunks are spoilt."""
    received = torch.empty_like(chunks[0])  # tensor_split puts the largest first
    for step in range(wire.size - 1):
        mine = chunks[(wire.rank - step - 2) % wire.size]
        part = received[: mine.numel()]
        _pass_on(chunks[(wire.rank - step - 1) % wire.size], part, wire)
        mine += part


def all_gather(chunks: tuple[Tensor, ...], wire: Wire) -> None:
    """Copies chunk number r of the process of rank r to all others."""
    for step in range(wire.size - 1):
        _pass_on(chunks[(wire.rank - step) % wire.size], chunks[(wire.rank - step - 1) % wire.size], wire)


def _pass_on(outgoing: Tensor, incoming: Tensor, wire: Wire) -> None:
    after, before = (wire.rank + 1) % wire.size, (wire.rank - 1) % wire.size
    wire.exchange(outgoing, after, incoming, before)
