"""Data parallel: the data ranks have the same weights, and average their gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainer_kit.averaging import Averaging
from trainer_kit.group import Group

from language_model.all_reduce.choosing import by_hand
from language_model.all_reduce.hook import register
from language_model.all_reduce.topology import Topology
from language_model.all_reduce.wire import Wire
from language_model.layout import Layout
from language_model.local_part import local
from language_model.mesh import DATA, Mesh


def replicate(model: nn.Module, layout: Layout, group: Group) -> nn.Module:
    """Wrap `model` so that the backward pass averages its gradients, in buckets of BUCKET_MB MiB."""
    averaging = Averaging(
        layout.bucket_mb,
        layout.gradient_compression,
        layout.powersgd_rank,
        layout.powersgd_start,
        layout.seed,
    )
    replica = group.wrap(model, averaging, gradient_as_bucket_view=True)
    if isinstance(replica, DistributedDataParallel) and layout.all_reduce is not Topology.LIBRARY:
        register(replica, by_hand(layout.all_reduce, group.size, layout.node_size), Wire())
    return replica


def average_gradients(model: nn.Module, mesh: Mesh) -> None:
    """Average the gradients over the data ranks in one exchange. Parameters without a gradient are left out.

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
