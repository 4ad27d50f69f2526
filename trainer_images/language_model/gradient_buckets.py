"""Flat buckets of gradients that are summed over the data ranks during the backward pass.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
Buckets are as in S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
VLDB 2020.
"""

import time
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from language_model.flat_parameters import FlatParameters


class Bucket(ABC):
    """The gradients of a range of the flat vector. Memory is allocated when the first gradient is added."""

    own: range
    """The elements of this bucket that this rank's optimizer updates, as a range of the flat vector. It may
    be empty."""

    def __init__(self, place: range, group: dist.ProcessGroup, device: torch.device) -> None:
        self.place = place
        self.gradient: Tensor | None = None
        """This rank's sum over its micro-batches. After `wait`, the elements `own` have the sum over all
        ranks."""
        self.received = 0
        """The number of elements that were added, over all micro-batches."""
        self._group = group
        self._device = device
        self._work: dist.Work | None = None

    @property
    def own_gradient(self) -> Tensor:
        """The gradient of the elements `own`, after `wait`."""
        assert self.gradient is not None
        return self.gradient[self.own.start - self.place.start : self.own.stop - self.place.start]

    def add(self, values: Tensor, start: int, scale: float) -> None:
        """Add those of `values` that belong to this bucket, multiplied by `scale`.

        The first of `values` belongs to the element `start` of the flat vector.
        """
        first, last = max(start, self.place.start), min(start + len(values), self.place.stop)
        if first < last:
            there = self._allocated()[first - self.place.start : last - self.place.start]
            there.add_(values[first - start : last - start], alpha=scale)
            self.received += last - first

    def send(self) -> None:
        """Start to sum the bucket over the ranks. Every rank must send its buckets in the same order."""
        self._work = self._reduce(self._allocated())

    def wait(self) -> None:
        """Wait for the sum. If this rank does not need the sum, this may free the bucket."""
        if self._work is not None:
            self._work.wait()
            self._work = None

    def clear(self) -> None:
        """Free the memory of the bucket."""
        self.gradient, self.received = None, 0

    def _allocated(self) -> Tensor:
        if self.gradient is None:
            self.gradient = torch.zeros(len(self.place), device=self._device)
        return self.gradient

    @abstractmethod
    def _reduce(self, gradient: Tensor) -> dist.Work: ...


class ScatteredBucket(Bucket):
    """A bucket of ZeRO-1: each rank gets the sum of an equal part of the bucket.

    The memory of the bucket is kept for the whole step.
    """

    def __init__(self, place: range, group: dist.ProcessGroup, device: torch.device) -> None:
        super().__init__(place, group, device)
        share = len(place) // group.size()
        start = place.start + group.rank() * share
        self.own = range(start, start + share)

    def _reduce(self, gradient: Tensor) -> dist.Work:
        work: dist.Work = dist.reduce_scatter_single(
            self.own_gradient, gradient, group=self._group, async_op=True
        )
        return work


class OwnedBucket(Bucket):
    """A bucket of ZeRO-2: only its owner gets the sum. In `wait`, the other ranks free the bucket."""

    def __init__(self, place: range, group: dist.ProcessGroup, device: torch.device, owner: int) -> None:
        super().__init__(place, group, device)
        self._owner = owner
        self.own = place if owner == group.rank() else range(0)

    def wait(self) -> None:  # noqa: D102
        super().wait()
        if not self.own:
            self.gradient = None

    def _reduce(self, gradient: Tensor) -> dist.Work:
        work: dist.Work = dist.reduce(gradient, group_dst=self._owner, group=self._group, async_op=True)
        return work


class GradientBuckets:
    """Takes each gradient of a model as soon as it is computed, and sums full buckets during the backward
    pass.

    A bucket is sent when it has the gradients of all micro-batches, so never before the last micro-batch.
    Buckets are sent in a fixed order, so that the collectives of different ranks match.
    """

    def __init__(
        self,
        model: nn.Module,
        flat: FlatParameters,
        buckets: list[Bucket],
        *,
        micro_batches: int,
        scale: float,
        in_flight: int,
    ) -> None:
        """`scale` multiplies each gradient; at most `in_flight` buckets are being summed at a time."""
        self._flat = flat
        self._buckets = buckets
        self._micro_batches = micro_batches
        self._scale = scale
        self._in_flight = in_flight
        self._sent = 0
        self.seconds_waited = 0.0
        """The time in which this rank waited for sums, in all steps."""
        self.overlaps = True
        """Whether buckets are sent during the backward pass, rather than after it."""
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]

    @property
    def held(self) -> list[Tensor]:
        """The gradients of the buckets that are in memory."""
        return [bucket.gradient for bucket in self._buckets if bucket.gradient is not None]

    def finish(self) -> None:
        """Send the remaining buckets, and wait for all sums."""
        while self._sent < len(self._buckets):
            self._send_next()
        self._wait_for(self._buckets)

    def clear(self) -> None:
        """Free all buckets, for the next step."""
        for bucket in self._buckets:
            bucket.clear()
        self._sent = 0

    def _take(self, parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if isinstance(parameter, DTensor):
            assert isinstance(gradient, DTensor)
            gradient = gradient.redistribute(placements=parameter.placements).to_local()
        values = gradient.flatten()
        for bucket in self._buckets:
            bucket.add(values, self._flat.place(parameter).start, self._scale)
        while self.overlaps and self._sent < len(self._buckets) and self._is_full(self._buckets[self._sent]):
            self._send_next()

    def _is_full(self, bucket: Bucket) -> bool:
        elements = min(bucket.place.stop, self._flat.size) - bucket.place.start
        return bucket.received >= elements * self._micro_batches

    def _send_next(self) -> None:
        self._wait_for(self._buckets[: max(0, self._sent - self._in_flight + 1)])
        self._buckets[self._sent].send()
        self._sent += 1

    def _wait_for(self, buckets: list[Bucket]) -> None:
        began = time.perf_counter()
        for bucket in buckets:
            bucket.wait()
        self.seconds_waited += time.perf_counter() - began
