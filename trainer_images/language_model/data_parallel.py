"""Data parallel: the data ranks have the same weights, and average their gradients."""

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from trainer_kit.group import Group

from language_model.all_reduce.choosing import by_hand
from language_model.all_reduce.hook import register
from language_model.all_reduce.topology import Topology
from language_model.all_reduce.wire import Wire
from language_model.choices import Compression
from language_model.layout import Layout
from language_model.local_part import local
from language_model.mesh import DATA, Mesh


def replicate(model: nn.Module, layout: Layout, group: Group) -> nn.Module:
    """Wrap `model` so that the backward pass averages its gradients, in buckets of BUCKET_MB."""
    replica = group.wrap(model, bucket_cap_mb=layout.bucket_mb, gradient_as_bucket_view=True)
    if isinstance(replica, DistributedDataParallel) and layout.gradient_compression in HOOKS:
        HOOKS[layout.gradient_compression](replica, layout)
    if isinstance(replica, DistributedDataParallel) and layout.all_reduce is not Topology.LIBRARY:
        register(replica, by_hand(layout.all_reduce, group.size, layout.node_size), Wire())
    return replica


def _to_fp16(replica: DistributedDataParallel, _: Layout) -> None:
    """Halve the traffic."""
    replica.register_comm_hook(None, default_hooks.fp16_compress_hook)


def _to_bf16(replica: DistributedDataParallel, _: Layout) -> None:
    """Halve the traffic, and keep the range of fp32."""

    # A wrapper, since DistributedDataParallel requires NCCL for the hook itself, although gloo can sum bf16.
    def compress(
        group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        return default_hooks.bf16_compress_hook(group, bucket)

    replica.register_comm_hook(None, compress)


def _to_low_rank(replica: DistributedDataParallel, layout: Layout) -> None:
    """PowerSGD (Vogels et al., NeurIPS 2019): send two factors of rank 1 for each matrix.

    The error of this approximation is added to the gradient of the next step. The first steps are not
    compressed.
    """
    state = powerSGD_hook.PowerSGDState(
        process_group=None,
        matrix_approximation_rank=1,
        start_powerSGD_iter=POWERSGD_START,
        random_seed=layout.seed,
    )
    replica.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


POWERSGD_START = 2
"""The number of steps before compression. PyTorch requires two or more."""

HOOKS: Mapping[str, Callable[[DistributedDataParallel, Layout], None]] = {
    Compression.FP16: _to_fp16,
    Compression.BF16: _to_bf16,
    Compression.POWERSGD: _to_low_rank,
}
"""The functions that register compression, by name."""


def average_gradients(model: nn.Module, mesh: Mesh) -> None:
    """Average the present gradients over the data ranks in one exchange.

    This is for models that DistributedDataParallel does not support: pipeline stages and tensor parallel
    models.
    """
    gradients = [local(p.grad) for p in model.parameters() if p.grad is not None]
    ranks = mesh.along(DATA)
    together = torch.cat([gradient.flatten() for gradient in gradients]) / ranks.size()
    dist.all_reduce(together, group=ranks.get_group())
    for gradient, average in zip(
        gradients, torch.split(together, [gradient.numel() for gradient in gradients]), strict=True
    ):
        gradient.copy_(average.view_as(gradient))
