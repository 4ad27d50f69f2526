"""The names of the all-reduce algorithms. This module does not need PyTorch."""

from enum import StrEnum


class Topology(StrEnum):
    """The communication pattern for summing gradients."""

    LIBRARY = "library"
    """The algorithm that the library (gloo or NCCL) chooses."""
    STAR = "star"
    """One process sums the tensors of all processes."""
    TREE = "tree"
    RING = "ring"
    HALVING_DOUBLING = "halving_doubling"
    BINARY_BLOCKS = "binary_blocks"
    """Halving and doubling in blocks whose sizes are powers of two."""
    HIERARCHICAL = "hierarchical"
    """Sums first along a tree within each node, then around a ring of one leader per node."""
    HIERARCHICAL_RING = "hierarchical_ring"
    """Like `hierarchical`, but within nodes, chunks go from neighbour to neighbour instead of along a
    tree."""
    TORUS = "torus"


BY_HAND = [topology for topology in Topology if topology is not Topology.LIBRARY]
