"""DistributedDataParallel with an all-reduce of this package."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from language_model.all_reduce.choosing import AllReduce
from language_model.all_reduce.wire import Wire


def register(replica: DistributedDataParallel, all_reduce: AllReduce, wire: Wire) -> None:
    """Let `replica` average its gradients over the wire's processes with `all_reduce`.

    A bucket is summed as soon as it is full, but the backward pass waits for the sum. PyTorch's own averaging
    overlaps with the pass; this code is for reading and measuring.
    """

    def average(
        _: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # missing in PyTorch's stubs
    ) -> torch.futures.Future[torch.Tensor]:
        # Divide before summing, like DistributedDataParallel, so that sums do not overflow in a type of few
        # bits, such as float16.
        gradients = bucket.buffer().div_(wire.size)
        all_reduce(gradients, wire)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(gradients)
        return done

    replica.register_comm_hook(None, average)
