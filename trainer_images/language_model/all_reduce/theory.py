"""Formulas for the traffic of one process in an all-reduce of S bytes. This module does not need PyTorch.

The total over all processes is the same for all algorithms, 2 (n - 1) S: all but one process must send their
data, and all but one must receive the sum. The algorithms differ in the number of messages, in the traffic of
the busiest process, and in the links that they use.
"""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from language_model.all_reduce.topology import Topology


class Traffic(NamedTuple):
    """The traffic of one process."""

    share: Fraction
    """The bytes sent, as a multiple of the tensor's size."""
    messages: int


def of_rank(topology: Topology, rank: int, size: int, node_size: int) -> Traffic:
    """Return the traffic of one process. Raises KeyError for Topology.LIBRARY."""
    formulas: dict[Topology, Callable[[], Traffic]] = {
        Topology.STAR: lambda: star(rank, size),
        Topology.TREE: lambda: tree(rank, size),
        Topology.RING: lambda: ring(size),
        Topology.HALVING_DOUBLING: lambda: halving_doubling(rank, size),
        Topology.BINARY_BLOCKS: lambda: binary_blocks(rank, size),
        Topology.HIERARCHICAL: lambda: hierarchical(rank, size, node_size),
        Topology.HIERARCHICAL_RING: lambda: hierarchical_ring(rank, size, node_size),
        Topology.TORUS: lambda: torus(size, squarest_columns(size)),
    }
    return formulas[topology]()


def star(rank: int, size: int) -> Traffic:
    """Return the traffic of a star: rank 0 sends the sum to all others."""
    sent = 1 if rank else size - 1
    return Traffic(Fraction(sent), sent)


def tree(rank: int, size: int) -> Traffic:
    """Return the traffic of a binary tree: a process sends to its parent once, and to each child once."""
    sent = (rank > 0) + max(0, min(2 * rank + 3, size) - (2 * rank + 1))
    return Traffic(Fraction(sent), sent)


def ring(size: int) -> Traffic:
    """Return the traffic of each process of a ring.

    With any algorithm, the busiest process sends at least this many bytes (Patarasuk and Yuan 2009).
    """
    return Traffic(2 * Fraction(size - 1, size), 2 * (size - 1))


def halving_doubling(rank: int, size: int) -> Traffic:
    """Return the traffic of recursive halving and doubling (Thakur et al. 2005, section 4).

    If `size` is not a power of two, some processes first send their tensor to a neighbour.
    """
    core = 1 << (size.bit_length() - 1)
    folded = size - core
    if rank < 2 * folded and rank % 2 == 0:
        return Traffic(Fraction(1), 1)
    is_helper = rank < 2 * folded
    return Traffic(2 * Fraction(core - 1, core) + is_helper, 2 * (core.bit_length() - 1) + is_helper)


def binary_blocks(rank: int, size: int) -> Traffic:
    """Return the traffic of halving and doubling within blocks (Rabenseifner and Träff 2004).

    The processes form blocks. The sizes of the blocks are the powers of two that add up to `size`. In its
    block, each process sums a part of the tensor. If there is a larger block, the process also sends
    its part to the next larger one, in k messages if that block is k times larger. If there is a smaller
    block, the process later sends the sum of its part to one process of the next smaller block.
    """
    blocks = [1 << bit for bit in reversed(range(size.bit_length())) if size >> bit & 1]
    place = next(place for place in range(len(blocks)) if rank < sum(blocks[: place + 1]))
    block = blocks[place]
    has_smaller, has_larger = place + 1 < len(blocks), place > 0
    share = 2 * Fraction(block - 1, block) + Fraction(has_smaller + has_larger, block)
    messages = 2 * (block.bit_length() - 1) + has_smaller
    return Traffic(share, messages + (blocks[place - 1] // block if has_larger else 0))


def hierarchical(rank: int, size: int, node_size: int) -> Traffic:
    """Return the traffic with a binomial tree in each node and a ring between the leaders (Jia et al. 2018).

    A process sends the whole tensor to its parent, and the sum to each child.
    """
    place = rank % node_size
    in_node = min(node_size, size - (rank - place))
    below = _binomial_children(place, in_node)
    if place:
        return Traffic(Fraction(1 + below), 1 + below)
    between = ring(-(-size // node_size))
    return Traffic(between.share + below, between.messages + below)


def hierarchical_ring(rank: int, size: int, node_size: int) -> Traffic:
    """Return the traffic with a chain in each node and a ring between the leaders (Jia et al. 2018).

    The m processes of a node pass m chunks along their chain.
    """
    place = rank % node_size
    in_node = min(node_size, size - (rank - place))
    passed = (place > 0) + (place < in_node - 1)
    between = Traffic(Fraction(0), 0) if place else ring(-(-size // node_size))
    return Traffic(between.share + passed, between.messages + passed * in_node)


def torus(size: int, columns: int) -> Traffic:
    """Return the traffic of a ring along the row and a ring along the column (Mikami et al. 2018).

    The ring along the column sums only one chunk of the tensor.
    """
    row, column = ring(columns), ring(size // columns)
    return Traffic(row.share + column.share / columns, row.messages + column.messages)


def squarest_columns(size: int) -> int:
    """Return the number of columns of the grid of `size` ranks that is closest to a square.

    An all-reduce on this grid needs the fewest steps. A prime `size` gives one row.
    """
    rows = max(rows for rows in range(1, isqrt(size) + 1) if size % rows == 0)
    return size // rows


def of_all(size: int) -> int:
    """Return the total traffic of all processes, as a multiple of the tensor's size.

    It is the same for all algorithms of this package.
    """
    return 2 * (size - 1)


def _binomial_children(rank: int, size: int) -> int:
    return sum(1 for bit in range(size.bit_length()) if rank % (2 << bit) == 0 and rank + (1 << bit) < size)
