"""The processes that train together: joining the group, and its collective operations."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer_kit import batch_norm, environment, gradient_hooks, steps
from trainer_kit.averaging import Averaging
from trainer_kit.meeting import Meeting
from trainer_kit.rendezvous import meet

MAX_PROCESSES = 100_000


@dataclass(frozen=True)
class Place:
    """This process's place in its group."""

    rank: int
    size: int
    local_rank: int
    """The number (from 0) of this process in its instance."""
    local_size: int
    """The number of processes of the instance."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the group's variables. If none is set, the process is alone."""
        size = environment.integer("WORLD_SIZE", default=1, at_least=1, at_most=MAX_PROCESSES)
        local_size = environment.integer("LOCAL_WORLD_SIZE", default=1, at_least=1, at_most=size)
        first = 0 if size == 1 else None  # with several processes, RANK must be set
        return cls(
            rank=environment.integer("RANK", default=first, at_least=0, at_most=size - 1),
            size=size,
            local_rank=environment.integer("LOCAL_RANK", default=0, at_least=0, at_most=local_size - 1),
            local_size=local_size,
        )


@dataclass(frozen=True)
class Group:
    """The group, as seen from one of its processes. A group of one needs no network."""

    rank: int
    size: int
    device: torch.device
    """The device of this process: its own GPU, or the CPU."""

    @property
    def is_master(self) -> bool:
        """Whether this process logs, saves and reports for the group."""
        return self.rank == 0

    def wrap(self, model: nn.Module, averaging: Averaging | None = None, **options: Any) -> nn.Module:
        """Wrap `model` so that every backward pass averages its gradients over the group.

        On a CPU, the backward pass ends with a wait for the gradients of other processes. This time counts as
        waiting (`steps`). On a GPU, the pass does not wait. In a group of one, `model` itself is returned.

        The wrapper shares the parameters of `model`: save `model`, not the wrapper. `averaging` has the size
        of buckets and the compression, by default from the environment (BUCKET_MB, GRADIENT_COMPRESSION).
        `options` are those of DistributedDataParallel. Logs a warning if the model has batch normalization
        with the statistics of one rank. Raises ParameterError for an invalid variable.
        """
        averaging = averaging or Averaging.from_environment()
        if self.size == 1:
            return model
        batch_norm.warn_of_local(model)
        options = {"bucket_cap_mb": averaging.bucket_mb, **options}
        replica = _with_final_buckets(DistributedDataParallel(model, **options))
        gradient_hooks.register(averaging, replica)
        _note_waiting(replica)
        return replica

    def total(self, *values: float) -> list[float]:
        """Return each value's sum over the group. Every process must call this, and gets the same sums."""
        # Sums of counts are exact in double precision.
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            with steps.OF_PROCESS.waiting():
                dist.all_reduce(sums)
        return sums.tolist()

    def barrier(self) -> None:
        """Wait until every process of the group has called this."""
        if self.size > 1:
            with steps.OF_PROCESS.waiting():
                dist.barrier()

    def step(self, number: int) -> None:
        """Record that this process has done `number` steps. Costs about a microsecond; see `steps`."""
        steps.OF_PROCESS.step(number)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Declare a block in which no steps are expected: "evaluation", "saving" or "compiling"."""
        return steps.OF_PROCESS.phase(name)


def _with_final_buckets(grouped: DistributedDataParallel) -> DistributedDataParallel:
    """Run a first backward pass, after which `grouped` rearranges its gradient buckets.

    With three or more processes, the buckets determine the order in which gradients are summed. Without this
    pass, a resumed run would take its first step with other buckets than an uninterrupted run, and the
    results of the two runs would differ in the last bits. The pass uses only the parameters, so it is the
    same at every start.
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


def _note_waiting(grouped: DistributedDataParallel) -> None:
    """Record how long each backward pass of `grouped` waits for the gradients of other processes.

    When autograd has computed all gradients, it calls the queued callbacks in their order. DDP waits in its
    own callback, which it queues once all gradients are ready. `_begin` is queued when one of the gradients
    is ready, so it runs before DDP's callback. `_end` is queued when `_begin` runs, so it runs after DDP's
    callback. None of this changes how DDP reduces the gradients.
    """
    waits: list[AbstractContextManager[None]] = []
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def _begin() -> None:
        _end()  # in case the last pass failed while it waited
        waits.append(steps.OF_PROCESS.waiting())
        waits[-1].__enter__()
        queue(_end)

    def _end() -> None:
        while waits:
            waits.pop().__exit__(None, None, None)

    trained = [parameter for parameter in grouped.module.parameters() if parameter.requires_grad]
    trained[-1].register_post_accumulate_grad_hook(lambda _: queue(_begin))


@contextmanager
def join() -> Iterator[Group]:
    """Join the group that the environment defines, for the duration of a `with` block.

    Raises GroupError if the group is not complete within GROUP_TIMEOUT seconds, and ParameterError for
    invalid variables. A single process does not connect to anything.
    """
    place = Place.from_environment()
    _share_cpus(place)
    device = _device_of(place)
    if place.size > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        meet(Meeting.from_environment(), place.rank, place.size, backend)
    yield Group(place.rank, place.size, device)
    # Leave the group only after success. After a failure, an exchange with a dead peer may be pending, and
    # this call would wait for it. The end of the process closes its connections at once, which the peers
    # notice.
    if place.size > 1:
        dist.destroy_process_group()


def _share_cpus(place: Place) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // place.local_size))


def _device_of(place: Place) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device
