"""Finds an all-reduce algorithm by name."""

from functools import partial
from typing import Protocol

from torch import Tensor

from language_model.all_reduce import binary_blocks, halving_doubling, hierarchical, ring, star, torus, tree
from language_model.all_reduce.theory import squarest_columns
from language_model.all_reduce.topology import Topology
from language_model.all_reduce.wire import Wire


class AllReduce(Protocol):
    """Sums a contiguous tensor over all processes of the wire in place, with identical results in all."""

    def __call__(self, tensor: Tensor, wire: Wire) -> None:
        """Sum the tensor. Every process must call this with a tensor of the same size and type."""
        ...


def by_hand(topology: Topology, size: int, node_size: int) -> AllReduce:
    """Return the algorithm for `size` processes, with `node_size` of them per node.

    A torus uses the grid of `size` processes that is closest to a square. Raises KeyError for
    Topology.LIBRARY.
    """
    algorithms: dict[Topology, AllReduce] = {
        Topology.STAR: star.all_reduce,
        Topology.TREE: tree.all_reduce,
        Topology.RING: ring.all_reduce,
        Topology.HALVING_DOUBLING: halving_doubling.all_reduce,
        Topology.BINARY_BLOCKS: binary_blocks.all_reduce,
        Topology.HIERARCHICAL: partial(hierarchical.all_reduce, node_size=node_size),
        Topology.HIERARCHICAL_RING: partial(hierarchical.all_reduce, node_size=node_size, has_rings=True),
        Topology.TORUS: partial(torus.all_reduce, columns=squarest_columns(size)),
    }
    return algorithms[topology]
