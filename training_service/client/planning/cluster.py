"""Devices, the links between them, and the time of collectives on these links.

An all-reduce among n devices takes 2 log2(n) latencies, and each device sends 2(n-1)/n times the bytes. An
all-gather or a reduce-scatter takes half of both. Source: Thakur, Rabenseifner and Gropp, *Optimization of
collective communication operations in MPICH*, 2005, sections 4.1 to 4.5.
"""

import math
from dataclasses import dataclass

EFFICIENCY = 0.6
"""The share of a device's peak speed that products of large matrices reach in training, without
communication.

For whole steps on A100, Korthikanti et al., 2022, table 5, measure 54 to 56 % of the peak, and Narayanan et
al., SC 2021, table 1, measure 44 to 52 %. These steps include communication, waiting and small operations.
"""

LINK_EFFICIENCY = 0.8
"""The share of a link's rated bandwidth that collectives reach: nccl-tests on A100, 235 of 300 GB/s."""

LARGEST = {
    "memory": (1.0, 1e15, "bytes"),
    "speed": (1.0, 1e19, "operations a second"),
    "inner_bandwidth": (1.0, 1e15, "bytes a second"),
    "outer_bandwidth": (1.0, 1e15, "bytes a second"),
    "inner_latency": (0.0, 10.0, "seconds"),
    "outer_latency": (0.0, 10.0, "seconds"),
    "host_bandwidth": (1.0, 1e15, "bytes a second"),
    "layer_overhead": (0.0, 10.0, "seconds"),
    "efficiency": (1e-6, 1.0, "as a share of the speed"),
    "link_efficiency": (1e-6, 1.0, "as a share of the bandwidth"),
    "machines": (1, 100_000, "machines"),
    "per_machine": (1, 100_000, "devices"),
}
"""The bounds and the unit of each quantity."""

MOST_DEVICES = 100_000


@dataclass(frozen=True)
class Cluster:
    """Equal machines with equal devices. The units are bytes, seconds, and operations a second."""

    memory: float
    speed: float
    """The peak speed of a device in the precision of the training, or its measured speed."""
    machines: int = 1
    per_machine: int = 1
    inner_bandwidth: float = 300e9
    """Bandwidth from a device to the other devices of its machine, in one direction."""
    inner_latency: float = 5e-6
    outer_bandwidth: float = 12.5e9
    """Bandwidth from a machine to other machines, over all its links together, in one direction."""
    outer_latency: float = 20e-6
    host_bandwidth: float = 25e9
    """Bandwidth from a device to the memory of its host."""
    layer_overhead: float = 0.0
    """The time in seconds to start the operations of a layer's passes for one micro-batch.

    It does not depend on the size of the micro-batch. It is 0 where operations are queued faster than they
    run, as on GPUs with large layers.
    """
    efficiency: float = EFFICIENCY
    link_efficiency: float = LINK_EFFICIENCY

    def __post_init__(self) -> None:
        """Check the quantities. Raises ValueError, which names the quantity."""
        for name, (least, most, unit) in LARGEST.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise ValueError(f"{name} is {value:g}; it must be from {least:g} to {most:g} {unit}")
        if self.devices > MOST_DEVICES:
            raise ValueError(
                f"{self.machines} machines x {self.per_machine} devices = {self.devices} devices; at most "
                f"{MOST_DEVICES} are planned"
            )

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.machines * self.per_machine

    def link(self, size: int, stride: int) -> tuple[float, float]:
        """Return the latency and the bandwidth between the devices of a group.

        The group has `size` devices, whose numbers are `stride` apart. Devices are numbered machine by
        machine, and each has an equal share of its machine's links to other machines. A group with several
        devices in each machine uses the shares of all of them.
        """
        if (size - 1) * stride < self.per_machine:
            return self.inner_latency, self.inner_bandwidth * self.link_efficiency
        inside = max(1, self.per_machine // stride)
        share = min(self.inner_bandwidth, self.outer_bandwidth * inside / self.per_machine)
        return self.outer_latency, share * self.link_efficiency


def gathering(size: int, sent: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of an all-gather or a reduce-scatter among `size` devices.

    `sent` is the number of bytes of all parts together.
    """
    if size == 1:
        return 0.0
    return math.log2(size) * latency + (size - 1) / size * sent / bandwidth


def all_reduce(size: int, sent: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of an all-reduce of `sent` bytes among `size` devices."""
    return 2 * gathering(size, sent, latency, bandwidth)
