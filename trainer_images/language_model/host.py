"""The memory of the host as seen from a device, and the copies between host and device.

If the device is the CPU, it has no memory apart from the host's, so the device's memory is simulated: copies
are real, and each tensor counts as held by the device or by the host. While a MemoryMeter measures, the
result of an operation on tensors of the host counts as held by the host, as with a real device.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from language_model.local_part import local


class Host:
    """The host of one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_simulated = device.type == "cpu"
        self._held: weakref.WeakValueDictionary[int, torch.UntypedStorage] = weakref.WeakValueDictionary()
        self.receives: bool | None = None
        """The direction of a running copy: true to the host, false to the device; None without a copy."""
        self.bytes_in = 0
        """Bytes copied to the host."""
        self.bytes_out = 0
        """Bytes copied to the device."""

    def holds(self, tensor: Tensor) -> bool:
        """Return whether the tensor is in the host's memory."""
        if not self._is_simulated:
            return tensor.device.type == "cpu"
        storage = local(tensor).untyped_storage()
        return self._held.get(storage._cdata) is storage

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Count these tensors as held by the host, if the device is simulated."""
        if self._is_simulated:
            for tensor in tensors:
                storage = local(tensor).untyped_storage()
                self._held[storage._cdata] = storage

    def take(self, tensor: Tensor) -> Tensor:
        """Return a copy in the host's memory."""
        self.bytes_in += local(tensor).nbytes
        original = tensor.detach()
        with self._copying(to_host=True):
            copy = original.clone() if self._is_simulated else original.cpu()
        self.keep([copy])
        return copy

    def give(self, tensor: Tensor) -> Tensor:
        """Return a copy in the device's memory."""
        self.bytes_out += local(tensor).nbytes
        original = tensor.detach()
        with self._copying(to_host=False):
            return original.clone() if self._is_simulated else original.to(self._device)

    @contextmanager
    def _copying(self, *, to_host: bool) -> Iterator[None]:
        self.receives = to_host
        try:
            yield
        finally:
            self.receives = None
