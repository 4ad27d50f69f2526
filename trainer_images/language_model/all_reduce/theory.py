"""What one process sends in an all-reduce of S bytes, by formula. Needs no PyTorch.

Over all processes it is the same for every algorithm here, 2 (n - 1) S: each but one must give away what
it has, and each but one must be told the sum. What differs is in how many messages, who bears the most,
and, where the links differ, over which of them it goes.
"""

from fractions import Fraction
from typing import NamedTuple


class Traffic(NamedTuple):
    """Of one process."""

    share: Fraction
    """Bytes sent, in units of the tensor's own."""
    messages: int


def ring(size: int) -> Traffic:
    """Of any process (Patarasuk and Yuan 2009): the fewest bytes that the busiest process can send."""
    return Traffic(2 * Fraction(size - 1, size), 2 * (size - 1))


def halving_doubling(rank: int, size: int) -> Traffic:
    """Thakur et al. 2005, section 4; with the fold for what is over a power of two."""
    core = 1 << (size.bit_length() - 1)
    folded = size - core
    if rank < 2 * folded and rank % 2 == 0:
        return Traffic(Fraction(1), 1)
    is_helper = rank < 2 * folded
    return Traffic(2 * Fraction(core - 1, core) + is_helper, 2 * (core.bit_length() - 1) + is_helper)


def hierarchical(rank: int, size: int, node_size: int) -> Traffic:
    """After Jia et al. 2018, with a binomial tree in each node and a ring between the leaders.

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
    """Mikami et al. 2018: a ring along the row, with a ring of one chunk along the column in between."""
    row, column = ring(columns), ring(size // columns)
    return Traffic(row.share + column.share / columns, row.messages + column.messages)


def of_all(size: int) -> int:
    """What all processes together send, in units of the tensor's bytes, whatever the algorithm."""
    return 2 * (size - 1)


def _binomial_children(rank: int, size: int) -> int:
    return sum(1 for bit in range(size.bit_length()) if rank % (2 << bit) == 0 and rank + (1 << bit) < size)
