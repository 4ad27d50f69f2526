"""Measures the collective operations for each size.

Sizes and bandwidths are defined as in nccl-tests, doc/PERFORMANCE.md: the size of all_gather and of
reduce_scatter is the size of the whole tensor, of which each of n ranks has a part. Algorithm bandwidth is
size divided by time. Bus bandwidth is algorithm bandwidth times a factor (`bus_factor`), so that for the best
possible algorithm, it is the bandwidth of the slowest link.
"""

import math
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from network_check.parameters import Parameters
from network_check.result import CollectiveResult, TimedCollective
from network_check.timing import Clock, is_too_long, repeats_for

if TYPE_CHECKING:
    from trainer_kit.group import Group

Operation = Callable[[], object]
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
BARRIER = "barrier"
_NUMBER = 4
"""The number of bytes of a float32."""


def bus_factor(operation: str, size: int) -> float:
    """Return the quotient of bus bandwidth and algorithm bandwidth for `size` ranks."""
    match operation:
        case "all_reduce":
            return 2 * (size - 1) / size
        case "broadcast":
            return 1.0
        case _:
            return (size - 1) / size


def whole(size: int, ranks: int) -> int:
    """Return the size in bytes, rounded up so that each rank has equally many numbers."""
    return math.ceil(size / (_NUMBER * ranks)) * _NUMBER * ranks


def operation_of(name: str, size: int, group: "Group") -> Operation:
    """Return a function that runs the operation on a new tensor of `size` bytes.

    `size` must be a result of `whole`.
    """
    every = torch.zeros(size // _NUMBER, device=group.device)
    part = torch.zeros(size // _NUMBER // group.size, device=group.device)
    match name:
        case "all_reduce":
            return lambda: dist.all_reduce(every)
        case "all_gather":
            return lambda: dist.all_gather_single(every, part)
        case "reduce_scatter":
            return lambda: dist.reduce_scatter_single(part, every)
        case "broadcast":
            return lambda: dist.broadcast(every, 0)
        case _:
            received = torch.empty_like(every)
            return lambda: dist.all_to_all_single(received, every)


def measure(name: str, group: "Group", parameters: Parameters, clock: Clock) -> CollectiveResult:
    """Measure the time of an operation for each size, until a size would take too long.

    All ranks must call this, and get the same result.
    """
    sizes: list[TimedCollective] = []
    for wanted in parameters.sizes:
        size = whole(wanted, group.size)
        if sizes and is_too_long(sizes[-1].seconds, sizes[-1].bytes, size, parameters):
            break
        if sizes and size == sizes[-1].bytes:
            continue
        seconds, repeats = _timed(operation_of(name, size, group), group, parameters, clock)
        bandwidth = size / seconds
        bus = bandwidth * bus_factor(name, group.size)
        sizes.append(TimedCollective(size, seconds, repeats, bandwidth, bus))
    return CollectiveResult(name, sizes[0].seconds, sizes[-1].bus_bytes_per_s, sizes)


def measure_barrier(group: "Group", parameters: Parameters, clock: Clock) -> CollectiveResult:
    """Measure the time of a barrier. All ranks must call this, and get the same result."""
    seconds, _ = _timed(dist.barrier, group, parameters, clock)
    return CollectiveResult(BARRIER, seconds, None)


def _timed(operation: Operation, group: "Group", parameters: Parameters, clock: Clock) -> tuple[float, int]:
    """Return the median time until the last rank has done the operation, and the number of repetitions.

    A barrier before each repetition lets all ranks begin at about the same time. The ranks leave the barrier
    within less than a latency of each other, so the measured time is too long by less than a latency.
    """
    [first] = _longest([_after_barrier(operation, clock)], group)
    repeats = repeats_for(first, parameters)
    times = [_after_barrier(operation, clock) for _ in range(repeats)]
    return statistics.median(_longest(times, group)), repeats


def _after_barrier(operation: Operation, clock: Clock) -> float:
    dist.barrier()
    return clock.seconds(operation)


def _longest(times: list[float], group: "Group") -> list[float]:
    longest = torch.tensor(times, dtype=torch.float64, device=group.device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.tolist()
