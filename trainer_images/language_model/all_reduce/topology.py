"""The names of the ways to sum gradients; needs no PyTorch."""

from enum import StrEnum


class Topology(StrEnum):
    """Who sends to whom when gradients are summed."""

    LIBRARY = "library"
    """As the library of the backend, gloo or NCCL, sees fit."""
    RING = "ring"
    HALVING_DOUBLING = "halving_doubling"
    HIERARCHICAL = "hierarchical"
    """Within nodes first, then between one process of each."""
    TORUS = "torus"


BY_HAND = [topology for topology in Topology if topology is not Topology.LIBRARY]
