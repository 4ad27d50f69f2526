"""The processes that train together: joining them, and what they do as one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer_kit import environment
from trainer_kit.meeting import Meeting
from trainer_kit.rendezvous import meet

MAX_PROCESSES = 100_000


@dataclass(frozen=True)
class Place:
    """This process's place in its group."""

    rank: int
    size: int
    local_rank: int
    """Which of the training processes on its machine this one is."""
    local_size: int

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the group variables; with none of them set the process is alone."""
        size = environment.integer("WORLD_SIZE", default=1, at_least=1, at_most=MAX_PROCESSES)
        local_size = environment.integer("LOCAL_WORLD_SIZE", default=1, at_least=1, at_most=size)
        first = 0 if size == 1 else None  # among several, a process must be told which it is
        return cls(
            rank=environment.integer("RANK", default=first, at_least=0, at_most=size - 1),
            size=size,
            local_rank=environment.integer("LOCAL_RANK", default=0, at_least=0, at_most=local_size - 1),
            local_size=local_size,
        )


@dataclass(frozen=True)
class Group:
    """The processes that train together, seen from one of them. A group of one needs no network."""

    rank: int
    size: int
    device: torch.device
    """Where this process computes: a GPU of its own, or the CPU."""

    @property
    def is_master(self) -> bool:
        """Whether this process speaks, saves and reports for all."""
        return self.rank == 0

    def wrap(self, model: nn.Module, **options: Any) -> nn.Module:
        """`model`, made to average its gradients over the group in every backward pass.

        The parameters stay those of `model` itself, which is the thing to save. `options` are those of
        DistributedDataParallel.
        """
        if self.size == 1:
            return model
        return _with_settled_buckets(DistributedDataParallel(model, **options))

    def total(self, *values: float) -> list[float]:
        """Each value summed over the group; every process must call it, and each gets the same sums."""
        # Doubles, so that sums of counts are exact.
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(sums)
        return sums.tolist()


def _with_settled_buckets(grouped: DistributedDataParallel) -> DistributedDataParallel:
    """`grouped`, past the first backward pass, after which it lays its gradients out anew.

    From three processes on the layout decides in which order a gradient's parts are summed. A run that
    starts anew would take one step with the first layout where the unbroken run had the second, and the
    two would differ in their last bits from then on. So the first pass is one over the parameters
    alone, which comes out the same at every start.
    """
    model = grouped.module
    own_forward = vars(model).get("forward")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.forward = lambda: torch.stack([parameter.sum().float() for parameter in trained]).sum()
    try:
        torch.autograd.backward(grouped())
    finally:
        del model.forward
        if own_forward is not None:
            model.forward = own_forward
        grouped.zero_grad(set_to_none=True)
    return grouped


@contextmanager
def join() -> Iterator[Group]:
    """Joins the group that the environment names, for the length of a `with` block.

    Raises GroupError when the group has not come together within GROUP_TIMEOUT seconds, and
    ParameterError when the variables make no sense. A process that is alone joins nothing.
    """
    place = Place.from_environment()
    _share_the_machine(place)
    device = _device_of(place)
    if place.size > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        meet(Meeting.from_environment(), place.rank, place.size, backend)
    yield Group(place.rank, place.size, device)
    # Only after good work. After a failure an exchange with a dead peer may still be pending, and
    # leaving in order would wait for it; ending the process closes the connections at once, and
    # that is how the peers learn of it.
    if place.size > 1:
        dist.destroy_process_group()


def _share_the_machine(place: Place) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // place.local_size))


def _device_of(place: Place) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device
