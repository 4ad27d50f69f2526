"""The names of the all-reduce algorithms. This module does not need PyTorch."""

from enum import StrEnum


class Topology(StrEnum):
    """The communication pattern for summing gradients."""

    LIBRARY = "library"
    """The choice of the library, gloo or NCCL."""
    RING = "ring"
    HALVING_DOUBLING = "halving_doubling"
    HIERARCHICAL = "hierarchical"
    """First within nodes, then between one process of each node."""
    TORUS = "torus"


BY_HAND = [topology for topology in Topology if topology is not Topology.LIBRARY]
