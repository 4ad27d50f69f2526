"""Gathers the weights of the whole model from the processes that hold parts of it."""

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from trainer_kit.group import Group


def gather(model: nn.Module, group: Group) -> dict[str, Tensor]:
    """Return all weights by name, on the CPU, in rank 0; return no weights in other ranks.

    Every process must call this.
    """
    own = {name: _whole(weight.detach()).cpu() for name, weight in model.named_parameters()}
    if group.size == 1:
        return own
    parts: list[dict[str, Tensor]] | None = [{}] * group.size if group.is_master else None
    dist.gather_object(own, parts)
    return {name: weight for part in parts or () for name, weight in part.items()}


def _whole(weight: Tensor) -> Tensor:
    return weight.full_tensor() if isinstance(weight, DTensor) else weight
