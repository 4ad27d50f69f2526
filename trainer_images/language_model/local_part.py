"""The part of a tensor that this process holds."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor that may be divided among ranks, without a copy."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
