"""Binary Blocks (Rabenseifner and Träff, EuroPVM/MPI 2004): halving and doubling for any number of processes.

The n processes form blocks whose sizes are the powers of two in the binary form of n, the largest first. Each
block sums by recursive halving. Then, beginning with the smallest block, each block sends its sums to the
next larger block, which adds its own. The sum of all comes back the same way. After that, each block gathers
by recursive doubling. In `halving_doubling`, some processes first wait for the whole tensor of another
process if n is not a power of two; here, no process does.
"""

import torch
from torch import Tensor

from language_model.all_reduce.halving_doubling import halve_and_double
from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place."""
    blocks = blocks_of(wire.size)
    place = next(place for place, block in enumerate(blocks) if wire.rank in block)
    block, rank = blocks[place], wire.rank - blocks[place].start
    flat = tensor.view(-1)
    room = torch.empty_like(flat)

    def join_blocks(part: Tensor) -> None:
        """Sum this process's part of the tensor over all blocks."""
        smaller = None
        if place + 1 < len(blocks):
            smaller = blocks[place + 1].start + rank * len(blocks[place + 1]) // len(block)
            received = room[: part.numel()]
            wire.receive(received, smaller)
            part += received
        if place > 0:
            times = len(blocks[place - 1]) // len(block)
            first = blocks[place - 1].start + rank * times
            for number, piece in enumerate(halved(part, times)):
                wire.send(piece, first + number)
            for number, piece in enumerate(halved(part, times)):
                wire.receive(piece, first + number)
        if smaller is not None:
            wire.send(part, smaller)

    halve_and_double(flat, room, len(block) // 2, wire.among(block), join_blocks)


def blocks_of(size: int) -> list[range]:
    """Return the ranks of each block, the largest block first."""
    blocks: list[range] = []
    for bit in reversed(range(size.bit_length())):
        if size >> bit & 1:
            start = blocks[-1].stop if blocks else 0
            blocks.append(range(start, start + (1 << bit)))
    return blocks


def halved(tensor: Tensor, times: int) -> list[Tensor]:
    """Divide a tensor by recursive halving into `times` parts; `times` is a power of two."""
    if times == 1:
        return [tensor]
    return [part for half in tensor.tensor_split(2) for part in halved(half, times // 2)]
