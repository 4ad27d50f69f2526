"""Formulas for the traffic of one process in an all-reduce of S bytes. This module does not need PyTorch.

The total over all processes is the same for all algorithms, 2 (n - 1) S: all but one process must send their
data, and all but one must receive the sum. The algorithms differ in the number of messages, in the traffic of
the busiest process, and in the links that they use.
"""

from fractions import Fraction
from typing import NamedTuple


class Traffic(NamedTuple):
    """The traffic of one process."""

    share: Fraction
    """The bytes sent, as a multiple of the tensor's size."""
    messages: int


def ring(size: int) -> Traffic:
    """Return the traffic of any process, the minimum for the busiest process (Patarasuk and Yuan 2009)."""
    return Traffic(2 * Fraction(size - 1, size), 2 * (size - 1))


def halving_doubling(rank: int, size: int) -> Traffic:
    """Return the traffic after Thakur et al. 2005, section 4, with a fold if `size` is not a power of two."""
    core = 1 << (size.bit_length() - 1)
    folded = size - core
    if rank < 2 * folded and rank % 2 == 0:
        return Traffic(Fraction(1), 1)
    is_helper = rank < 2 * folded
    return Traffic(2 * Fraction(core - 1, core) + is_helper, 2 * (core.bit_length() - 1) + is_helper)


def hierarchical(rank: int, size: int, node_size: int) -> Traffic:
    """Return the traffic after Jia et al. 2018, with a binomial tree per node and a ring between the leaders.

    A process sends the whole tensor to its parent, and the sum to each child.
    """
    place = rank % node_size
    in_node = min(node_size, size - (rank - place))
    below = _binomial_children(place, in_node)
    if place:
        return Traffic(Fraction(1 + below), 1 + below)
    between = ring(-(-size // node_size))
    return Traffic(between.share + below, between.messages + below)


def torus(size: int, columns: int) -> Traffic:
    """Return the traffic after Mikami et al. 2018: a ring along the row, and one along the column."""
    row, column = ring(columns), ring(size // columns)
    return Traffic(row.share + column.share / columns, row.messages + column.messages)


def of_all(size: int) -> int:
    """Return the total traffic for any algorithm, as a multiple of the tensor's size."""
    return 2 * (size - 1)


def _binomial_children(rank: int, size: int) -> int:
    return sum(1 for bit in range(size.bit_length()) if rank % (2 << bit) == 0 and rank + (1 << bit) < size)
