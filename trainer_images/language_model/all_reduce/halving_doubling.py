"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).

If the number n of processes is a power of two, each process sends as many bytes as in a ring, but in 2 log2 n
steps instead of 2 (n - 1). Otherwise, some processes first send their tensor to a neighbour, and get the sum
from this neighbour at the end.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place."""
    flat = tensor.view(-1)
    core = 1 << (wire.size.bit_length() - 1)  # the largest power of two up to the number of processes
    folded = wire.size - core
    is_in_pair = wire.rank < 2 * folded
    if is_in_pair and wire.rank % 2 == 0:
        wire.send(flat, wire.rank + 1)
        wire.receive(flat, wire.rank + 1)
        return
    received = torch.empty_like(flat)
    if is_in_pair:
        wire.receive(received, wire.rank - 1)
        flat += received
    among_core = wire.among([*range(1, 2 * folded, 2), *range(2 * folded, wire.size)])
    halve_and_double(flat, received, core // 2, among_core)
    if is_in_pair:
        wire.send(flat, wire.rank - 1)


def halve_and_double(
    tensor: Tensor,
    room: Tensor,
    distance: int,
    wire: Wire,
    between: Callable[[Tensor], object] = lambda _: None,
) -> None:
    """Sum `tensor` over this process and the processes whose ranks differ from its rank only in the bit of
    `distance` or in lower bits. `distance` is a power of two, or 0. With 0, no other process takes part.

    Two partners, whose ranks differ only in the bit of `distance`, exchange halves. Each sums its half over
    the processes whose ranks differ from its own only in lower bits. Then the partners exchange the sums.

    `room` is a buffer for receiving. Between halving and doubling, `between` is called with the part that
    this process has summed. In the tensor, the parts are in the order of the ranks.
    """
    if distance == 0:
        between(tensor)
        return
    halves = tensor.tensor_split(2)
    kept, given = halves if not wire.rank & distance else halves[::-1]
    partner, received = wire.rank ^ distance, room[: kept.numel()]
    wire.exchange(given, partner, received, partner)
    kept += received
    halve_and_double(kept, room, distance // 2, wire, between)
    wire.exchange(kept, partner, given, partner)
