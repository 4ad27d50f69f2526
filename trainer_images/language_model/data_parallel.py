"""Data parallel: each data rank has the whole part of the model, and they average their gradients."""

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from trainer_kit.group import Group

from language_model.all_reduce.choosing import by_hand
from language_model.all_reduce.hook import register
from language_model.all_reduce.topology import Topology
from language_model.all_reduce.wire import Wire
from language_model.choices import Compression
from language_model.layout import Layout
from language_model.mesh import DATA, Mesh


def replicate(model: nn.Module, layout: Layout, group: Group) -> nn.Module:
    """`model`, made to average its gradients in the backward pass, BUCKET_MB at a time."""
    replica = group.wrap(model, bucket_cap_mb=layout.bucket_mb, gradient_as_bucket_view=True)
    if isinstance(replica, DistributedDataParallel) and layout.gradient_compression in HOOKS:
        HOOKS[layout.gradient_compression](replica, layout)
    if isinstance(replica, DistributedDataParallel) and layout.all_reduce is not Topology.LIBRARY:
        register(replica, by_hand(layout.all_reduce, group.size, layout.node_size), Wire())
    return replica


def _to_fp16(replica: DistributedDataParallel, _: Layout) -> None:
    """Halves what is sent."""
    replica.register_comm_hook(None, default_hooks.fp16_compress_hook)


def _to_bf16(replica: DistributedDataParallel, _: Layout) -> None:
    """Halves what is sent, and keeps the range of fp32."""

    # By another name: DistributedDataParallel wants NCCL for the hook itself, though gloo sums bf16 as well.
    def compress(
        group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        return default_hooks.bf16_compress_hook(group, bucket)

    replica.register_comm_hook(None, compress)


def _to_low_rank(replica: DistributedDataParallel, layout: Layout) -> None:
    """PowerSGD (Vogels et al., NeurIPS 2019): sends two thin factors of each matrix, of rank 1.

    What they leave out is added to the next step's gradient. Some steps go by uncompressed first.
    """
    state = powerSGD_hook.PowerSGDState(
        process_group=None,
        matrix_approximation_rank=1,
        start_powerSGD_iter=POWERSGD_START,
        random_seed=layout.seed,
    )
    replica.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


POWERSGD_START = 2
"""Steps before gradients are compressed; PyTorch asks for two or more."""

HOOKS: Mapping[str, Callable[[DistributedDataParallel, Layout], None]] = {
    Compression.FP16: _to_fp16,
    Compression.BF16: _to_bf16,
    Compression.POWERSGD: _to_low_rank,
}
"""What makes gradients smaller, or averages them in another way, by name."""


def average_gradients(model: nn.Module, mesh: Mesh) -> None:
    """Averages over the data ranks what is in the gradients now, in one exchange.

    For models that DistributedDataParallel does not take: in parts, or cut by tensor ranks.
    """
    gradients = [_local(p.grad) for p in model.parameters() if p.grad is not None]
    ranks = mesh.along(DATA)
    together = torch.cat([gradient.flatten() for gradient in gradients]) / ranks.size()
    dist.all_reduce(together, group=ranks.get_group())
    for gradient, average in zip(
        gradients, torch.split(together, [gradient.numel() for gradient in gradients]), strict=True
    ):
        gradient.copy_(average.view_as(gradient))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
