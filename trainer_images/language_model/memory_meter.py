"""Measures the memory of a process's tensors: the peak on the device and on the host, and by purpose.

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

from language_model.host import Host
from language_model.local_part import local


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory of every tensor that an operation takes or returns while the context is active."""

    def __init__(self, kept: list[Tensor], host: Host | None = None) -> None:
        """`kept` are tensors that exist all the time, even if no operation takes them."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._on_host: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._host = host
        self.peak = 0
        """The peak memory of the device in bytes."""
        self.host_peak = 0
        """The peak memory of the host in bytes."""
        self._see(kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation. PyTorch repeats an operation on DTensors with their local tensors."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        if self._host is not None and self._is_for_host(self._host, (args, kwargs)):
            self._host.keep(_tensors_in(result))
        self._see((args, result))
        return result

    @staticmethod
    def _is_for_host(host: Host, arguments: Any) -> bool:
        """Return whether the result of an operation is in the host's memory."""
        if host.receives is not None:
            return host.receives
        return any(host.holds(tensor) for tensor in _tensors_in(arguments))

    def _see(self, tensors: Any) -> None:
        for tensor in _tensors_in(tensors):
            storage = local(tensor).untyped_storage()
            is_host = self._host is not None and self._host.holds(tensor)
            (self._on_host if is_host else self._storages)[storage._cdata] = weakref.ref(storage)
            (self._storages if is_host else self._on_host).pop(storage._cdata, None)
        self.peak = max(self.peak, _size_of_alive(self._storages))
        self.host_peak = max(self.host_peak, _size_of_alive(self._on_host))


def _tensors_in(values: Any) -> list[Tensor]:
    return [
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.device.type != "meta"
    ]


def _size_of_alive(storages: dict[int, weakref.ref[torch.UntypedStorage]]) -> int:
    """Return the present size of the storages. fully_shard resizes those of gathered parameters."""
    return sum(found.nbytes() for each in storages.values() if (found := each()) is not None)


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
