"""Measures the memory of a process's tensors: the peaks on the device and on the host, and sizes by purpose.

It counts the tensors, not the memory of the process, so the result is the same on all machines.
"""

import weakref
from collections.abc import Iterator
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
        self._host = host
        self._of_device, self._of_host = _Storages(), _Storages()
        self._see([*_tensors_in(kept)])

    @property
    def peak(self) -> int:
        """The peak memory of the device in bytes."""
        return self._of_device.peak

    @property
    def host_peak(self) -> int:
        """The peak memory of the host in bytes."""
        return self._of_host.peak

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation's tensors. For DTensors, PyTorch calls this again with the local tensors."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        taken, returned = [*_tensors_in((args, kwargs))], [*_tensors_in(result)]
        if self._host is not None and self._is_for_host(self._host, taken):
            self._host.keep(returned)
        self._see(taken + returned)
        return result

    @staticmethod
    def _is_for_host(host: Host, arguments: list[Tensor]) -> bool:
        """Return whether the result of an operation is in the host's memory."""
        if host.receives is not None:
            return host.receives
        return any(host.holds(tensor) for tensor in arguments)

    def _see(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            storage = local(tensor).untyped_storage()
            is_host = self._host is not None and self._host.holds(tensor)
            here, there = (self._of_host, self._of_device) if is_host else (self._of_device, self._of_host)
            here.add(storage)
            there.remove(storage)
        self._of_device.measure()
        self._of_host.measure()


class _Storages:
    """The storages of the tensors in one memory, and the peak of their total size.

    Sizes change: fully_shard resizes the storages of gathered parameters.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._at_most = 0
        self.peak = 0

    def add(self, storage: torch.UntypedStorage) -> None:
        """Add a storage, or record the size that it has now."""
        _, before = self._known.get(storage._cdata, (None, 0))
        self._known[storage._cdata] = weakref.ref(storage), (size := storage.nbytes())
        self._at_most += size - before

    def remove(self, storage: torch.UntypedStorage) -> None:
        """Remove the storage, if it was added."""
        _, size = self._known.pop(storage._cdata, (None, 0))
        self._at_most -= size

    def measure(self) -> None:
        """Raise the peak to the current sum of the sizes, if that is higher."""
        # There are many storages, so look for freed ones only if the peak may have risen.
        if self._at_most <= self.peak:
            return
        alive = {key: (each, each()) for key, (each, _) in self._known.items()}
        self._known = {
            key: (each, found.nbytes()) for key, (each, found) in alive.items() if found is not None
        }
        self._at_most = sum(size for _, size in self._known.values())
        self.peak = max(self.peak, self._at_most)


def _tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors with memory among the arguments or results of an operation.

    `tree_leaves` of PyTorch finds the same tensors, but takes several times as long as most operations.
    """
    if isinstance(values, Tensor):
        if values.layout is torch.strided and values.device.type != "meta":
            yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors_in(value)
    elif isinstance(values, dict):
        yield from _tensors_in([*values.values()])


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
