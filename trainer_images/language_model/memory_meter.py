"""Measures the memory of the tensors that a process holds: the most at once, and by purpose.

Counts the tensors themselves, not what the process takes from the machine, so they are the same everywhere.
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
    """Counts, while entered, the memory of every tensor that an operation takes or returns."""

    def __init__(self, kept: list[Tensor]) -> None:
        """`kept` are tensors that exist all the time, whether an operation takes them or not."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.peak = 0
        """The most bytes held at once."""
        self._see(kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for each operation; what a DTensor asks for comes again with its own tensors."""
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
        # Asked anew each time: fully_shard empties the storages that it has gathered, and fills them again.
        alive = [found for each in self._storages.values() if (found := each()) is not None]
        self.peak = max(self.peak, sum(storage.nbytes() for storage in alive))


def local(tensor: Tensor) -> Tensor:
    """This process's share of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def parameters_of(model: nn.Module) -> list[Tensor]:
    """This process's share of the parameters."""
    return [local(parameter.detach()) for parameter in model.parameters()]


def gradients_of(model: nn.Module) -> list[Tensor]:
    """This process's share of the gradients."""
    return [local(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]


def state_of(optimizer: Optimizer) -> list[Tensor]:
    """This process's share of the optimizer's state."""
    return [local(leaf) for leaf in tree_leaves(list(optimizer.state.values())) if isinstance(leaf, Tensor)]


def size_of(tensors: list[Tensor]) -> int:
    """Bytes of tensors that share no memory."""
    return sum(tensor.nbytes for tensor in tensors)
