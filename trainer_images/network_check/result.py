"""The stored result of a measurement; its schema is in README.md."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

FORMAT = "network/1"
FILE = "network.json"


@dataclass(frozen=True)
class Timed:
    """The median time of a message, or of an operation, of `bytes` bytes."""

    bytes: int
    seconds: float
    repeats: int


@dataclass(frozen=True)
class PairResult:
    """The link from one rank to another."""

    source: int
    destination: int
    latency_s: float
    bandwidth_bytes_per_s: float
    sizes: list[Timed]


@dataclass(frozen=True)
class TimedCollective(Timed):
    """The median time of an operation, and its bandwidths as defined by nccl-tests."""

    algorithm_bytes_per_s: float
    bus_bytes_per_s: float


@dataclass(frozen=True)
class CollectiveResult:
    """A collective operation of all ranks.

    The latency is the time for the smallest size. The bandwidth is the bus bandwidth for the largest size, or
    None for a barrier.
    """

    operation: str
    latency_s: float
    bandwidth_bytes_per_s: float | None
    sizes: list[TimedCollective] = field(default_factory=list)


@dataclass(frozen=True)
class Bisection:
    """The result of the bisection: the lower half of the instances sends to the upper half, all at once."""

    bytes: int
    """The number of bytes that each instance of the lower half sends."""
    seconds: float
    bandwidth_bytes_per_s: float
    """The bytes of all pairs of instances together, divided by `seconds`, the time of the slowest pair."""


@dataclass(frozen=True)
class Median:
    """The median latency and the median bandwidth of all pairs."""

    latency_s: float
    bandwidth_bytes_per_s: float


def pair_result(source: int, destination: int, sizes: list[Timed], latency: float) -> PairResult:
    """Return the result of a pair. Its bandwidth comes from the times of the smallest and the largest size.

    If S is much larger than the smallest size, a message of S bytes takes about S / bandwidth longer than a
    message of the smallest size.
    """
    smallest, largest = sizes[0], sizes[-1]
    beyond = largest.seconds - smallest.seconds
    # With one size, or if the largest took no longer than the smallest, latency and transfer time cannot be
    # separated.
    seconds = beyond if beyond > 0 else largest.seconds
    return PairResult(source, destination, latency, largest.bytes / seconds, sizes)


def median_of(pairs: Sequence[PairResult]) -> Median | None:
    """Return the medians over the pairs; None if there are no pairs."""
    if not pairs:
        return None
    return Median(
        statistics.median(pair.latency_s for pair in pairs),
        statistics.median(pair.bandwidth_bytes_per_s for pair in pairs),
    )
