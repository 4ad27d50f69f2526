"""DistributedDataParallel with an all-reduce by hand."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from language_model.all_reduce.choosing import AllReduce
from language_model.all_reduce.wire import Wire


def register(replica: DistributedDataParallel, all_reduce: AllReduce, wire: Wire) -> None:
    """Makes `replica` average its gradients over the wire's processes by `all_reduce`.

    A bucket is sent as soon as it is full, but the backward pass waits for it: what is here is to be
    read and counted, while the library hides its messages behind the pass.
    """

    def average(
        _: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # its stubs leave it out
    ) -> torch.futures.Future[torch.Tensor]:
        # Divided first, as DistributedDataParallel does, so that a sum of many has room in few bits.
        gradients = bucket.buffer().div_(wire.size)
        all_reduce(gradients, wire)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(gradients)
        return done

    replica.register_comm_hook(None, average)
