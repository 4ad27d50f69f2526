"""Measures the memory of a process's tensors: the peak, and by purpose.

It counts the tensors, not the memory of the process, so the result is the same on all machines.
"""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory of every tensor that an operation takes or returns while the context is active."""

    def __init__(self, kept: list[Tensor]) -> None:
        """`kept` are tensors that exist all the time, even if no operation takes them."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.peak = 0
        """The peak memory in bytes."""
        self._see(kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation. PyTorch repeats an operation on DTensors with their local tensors."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        self._see((args, result))
        return result

    def _see(self, tensors: Any) -> None:
        for leaf in tree_leaves(tensors):
            if isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.device.type != "meta":
                storage = local(leaf).untyped_storage()
                self._storages[storage._cdata] = weakref.ref(storage)
        # Sizes are read each time, since fully_shard resizes the storages of gathered parameters.
        alive = [found for each in self._storages.values() if (found := each()) is not None]
        self.peak = max(self.peak, sum(storage.nbytes() for storage in alive))


def local(tensor: Tensor) -> Tensor:
    """Return this process's share of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def parameters_of(model: nn.Module) -> list[Tensor]:
    """Return this process's share of the parameters."""
    return [local(parameter.detach()) for parameter in model.parameters()]


def gradients_of(model: nn.Module) -> list[Tensor]:
    """Return this process's share of the gradients."""
    return [local(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]


def state_of(optimizer: Optimizer) -> list[Tensor]:
    """Return this process's share of the optimizer's state."""
    return [local(leaf) for leaf in tree_leaves(list(optimizer.state.values())) if isinstance(leaf, Tensor)]


def size_of(tensors: list[Tensor]) -> int:
    """Return the size in bytes of tensors that share no memory."""
    return sum(tensor.nbytes for tensor in tensors)
