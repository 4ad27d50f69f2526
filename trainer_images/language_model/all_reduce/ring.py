"""The ring (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009), with the minimum traffic per process.

Each process has two neighbours. The tensor is divided into one chunk per process. The partial sum of each
chunk goes around the ring once, then the complete sum goes around once more.
"""

import torch
from torch import Tensor

from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place."""
    chunks = tensor.view(-1).tensor_split(wire.size)
    reduce_scatter(chunks, wire)
    all_gather(chunks, wire)


def reduce_scatter(chunks: tuple[Tensor, ...], wire: Wire) -> None:
    """In each rank r, compute the sum of chunk r over all ranks. The rank's other chunks are overwritten."""
    received = torch.empty_like(chunks[0])  # tensor_split returns the largest chunk first
    for step in range(wire.size - 1):
        mine = chunks[(wire.rank - step - 2) % wire.size]
        part = received[: mine.numel()]
        _pass_on(chunks[(wire.rank - step - 1) % wire.size], part, wire)
        mine += part


def all_gather(chunks: tuple[Tensor, ...], wire: Wire) -> None:
    """Copy chunk r of rank r to all other ranks."""
    for step in range(wire.size - 1):
        _pass_on(chunks[(wire.rank - step) % wire.size], chunks[(wire.rank - step - 1) % wire.size], wire)


def _pass_on(outgoing: Tensor, incoming: Tensor, wire: Wire) -> None:
    after, before = (wire.rank + 1) % wire.size, (wire.rank - 1) % wire.size
    wire.exchange(outgoing, after, incoming, before)
