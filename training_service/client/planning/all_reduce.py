"""Compares ways to sum gradients on given links, and chooses the parameter ALL_REDUCE of `language-model`.

The numbers of bytes and messages are those of docs/parallelism-data.md. A group of ranks uses the links that
`Cluster.link` returns for it. The ranks are numbered machine by machine.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import OVERLAP, Training
from training_service.client.planning.search import Choice

BUCKET = 25 << 20
"""The bytes of gradients in one bucket: PyTorch's default."""
LIBRARY = "library"


@dataclass(frozen=True)
class Comparison:
    """The time in seconds that a step takes to sum the gradients, for each of several algorithms."""

    sent: float
    """The bytes of the gradients that are summed."""
    buckets: int
    alone: Mapping[str, float]
    """The time of each algorithm if nothing is computed meanwhile."""
    waiting: Mapping[str, float]
    """The time that a step waits, for each algorithm. Messages of the library's algorithm overlap with the
    backward pass; messages of the other algorithms do not."""

    @property
    def best(self) -> str:
        """The algorithm with the shortest wait; the library's if no other is better."""
        return min(self.waiting, key=lambda name: (self.waiting[name], name != LIBRARY))


def compared(training: Training, cluster: Cluster, choice: Choice) -> Comparison | None:
    """Return the comparison for a layout; None if DistributedDataParallel does not sum the gradients."""
    at = choice.layout
    if at.data == 1 or at.strategy != "ddp" or at.tensor * at.pipeline * at.context > 1:
        return None
    sent = training.model.parameters * training.states[1]
    buckets = max(1, math.ceil(sent / BUCKET))
    alone = {
        name: messages + of_bytes
        for name, (messages, of_bytes) in _algorithms(cluster, at.data, sent, buckets).items()
    }
    # Gradients are sent during the backward pass of the last micro-batch. A backward pass is two thirds of a
    # micro-batch's work.
    hidden = OVERLAP * (choice.time.work + choice.time.recomputed) / at.micro_batches * 2 / 3
    waiting = {name: seconds for name, seconds in alone.items() if name != LIBRARY}
    return Comparison(sent, buckets, alone, {LIBRARY: max(0.0, alone[LIBRARY] - hidden), **waiting})


def _algorithms(cluster: Cluster, n: int, sent: float, buckets: int) -> dict[str, tuple[float, float]]:
    """Return, by algorithm, the seconds that come from latencies, and the seconds that come from bytes.

    `n` is the number of ranks, and `sent` the bytes of the gradients in all `buckets`.
    """
    ring = _ring(cluster, n, 1, sent, buckets)
    return {
        LIBRARY: ring,  # gloo and NCCL use a ring for large sums
        "ring": ring,
        "halving_doubling": _halving_doubling(cluster, n, sent, buckets),
        "hierarchical": _hierarchical(cluster, n, sent, buckets),
        "torus": _torus(cluster, n, sent, buckets),
    }


def _ring(cluster: Cluster, n: int, stride: int, sent: float, buckets: int) -> tuple[float, float]:
    latency, bandwidth = cluster.link(n, stride)
    return 2 * (n - 1) * latency * buckets, 2 * (n - 1) / n * sent / bandwidth


def _halving_doubling(cluster: Cluster, n: int, sent: float, buckets: int) -> tuple[float, float]:
    """Return the seconds of latency and of transfer for exchanges between pairs of ranks.

    The distance between the ranks of a pair is halved in each round. If the number of ranks is not a power of
    two, the ranks above the largest power of two also exchange all bytes with another rank.
    """
    core = 1 << (n.bit_length() - 1)
    distance, part, latencies, seconds = core // 2, sent / 2, 0.0, 0.0
    while distance:
        latency, bandwidth = cluster.link(2, distance)
        latencies, seconds = latencies + 2 * latency, seconds + 2 * part / bandwidth
        distance, part = distance // 2, part / 2
    if n > core:
        latency, bandwidth = cluster.link(2, 1)
        latencies, seconds = latencies + 2 * latency, seconds + 2 * sent / bandwidth
    return latencies * buckets, seconds


def _hierarchical(cluster: Cluster, n: int, sent: float, buckets: int) -> tuple[float, float]:
    """Return the seconds of latency and of transfer for trees within machines, and a ring between machines.

    Each tree connects the ranks of one machine. The ring has one rank of each machine.
    """
    node = min(n, cluster.per_machine)
    machines = math.ceil(n / node)
    latency, bandwidth = cluster.link(node, 1) if node > 1 else (0.0, math.inf)
    depth = math.ceil(math.log2(node)) if node > 1 else 0
    latencies, seconds = 2 * depth * latency, 2 * depth * sent / bandwidth
    if machines > 1:  # a machine's rank in the ring has all links of the machine to itself
        outer = min(cluster.inner_bandwidth, cluster.outer_bandwidth) * cluster.link_efficiency
        latencies += 2 * (machines - 1) * cluster.outer_latency
        seconds += 2 * (machines - 1) / machines * sent / outer
    return latencies * buckets, seconds


def _torus(cluster: Cluster, n: int, sent: float, buckets: int) -> tuple[float, float]:
    """Return the seconds of latency and of transfer for rings in the rows and columns of a grid of ranks.

    The grid is as square as possible.
    """
    rows = max(rows for rows in range(1, math.isqrt(n) + 1) if n % rows == 0)
    columns = n // rows
    row = _ring(cluster, columns, 1, sent, buckets)
    column = _ring(cluster, rows, columns, sent / columns, buckets) if rows > 1 else (0.0, 0.0)
    return row[0] + column[0], row[1] + column[1]


def parameters(training: Training, cluster: Cluster, choice: Choice) -> dict[str, str]:
    """Return the parameters of `language-model` that select the best algorithm; empty if that is the
    library's own, or if there is nothing to compare.
    """
    comparison = compared(training, cluster, choice)
    if comparison is None or comparison.best == LIBRARY:
        return {}
    node = min(choice.layout.data, cluster.per_machine)
    of_node = {"NODE_SIZE": str(node)} if comparison.best == "hierarchical" else {}
    return {"ALL_REDUCE": comparison.best, **of_node}
