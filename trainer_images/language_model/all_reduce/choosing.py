"""An all-reduce by its name."""

from functools import partial
from typing import Protocol

from torch import Tensor

from language_model.all_reduce import halving_doubling, hierarchical, ring, torus
from language_model.all_reduce.topology import Topology
from language_model.all_reduce.wire import Wire


class AllReduce(Protocol):
    """Sums a contiguous tensor over all processes of the wire, in place; all have the same bits then."""

    def __call__(self, tensor: Tensor, wire: Wire) -> None:
        """Every process must call it with a tensor of the same size and kind."""
        ...


def by_hand(topology: Topology, size: int, node_size: int) -> AllReduce:
    """The algorithm of that name for `size` processes, `node_size` of them near each other.

    A torus has the squarest grid that `size` can make. Raises KeyError for the library's own.
    """
    algorithms: dict[Topology, AllReduce] = {
        Topology.RING: ring.all_reduce,
        Topology.HALVING_DOUBLING: halving_doubling.all_reduce,
        Topology.HIERARCHICAL: partial(hierarchical.all_reduce, node_size=node_size),
        Topology.TORUS: partial(torus.all_reduce, columns=torus.squarest_columns(size)),
    }
    return algorithms[topology]
