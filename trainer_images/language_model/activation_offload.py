"""OFFLOAD=activations: tensors that a forward pass saves for the backward pass are kept in the host's memory.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
offload in this way the activations that CHECKPOINTING=full keeps. Copies do not overlap with computing.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from language_model.host import Host
from language_model.local_part import local


class _Saved:
    """The memory of saved tensors (a PyTorch storage), copied to the host. It is copied back only once."""

    def __init__(self, whole: Tensor, host: Host) -> None:
        self.original = weakref.ref(whole.untyped_storage())
        self._host = host
        self._copy = host.take(whole)
        self._returned: Tensor | None = None

    def get(self) -> Tensor:
        if self._returned is None:
            self._returned = self._host.give(self._copy)
        return self._returned


_Packed = tuple[_Saved, torch.Size, tuple[int, ...], int, Callable[[Tensor], Tensor]]
"""A view as autograd keeps it: its storage, size, strides, offset, and the function that wraps it."""


@contextmanager
def offloaded(model: nn.Module, host: Host) -> Iterator[None]:
    """In the block, move the tensors that forward passes save for backward passes to the host's memory.

    Parameters and tokens stay on the device, which holds them anyway. Operations often save views of the same
    memory, such as the output of one and the input of the next. So each storage is copied once.
    """
    known: weakref.WeakValueDictionary[int, _Saved] = weakref.WeakValueDictionary()

    def pack(tensor: Tensor) -> object:
        part = local(tensor)
        storage = part.untyped_storage()
        if tensor.dtype is torch.long or storage._cdata in _storages_of(model):
            return tensor
        saved = known.get(storage._cdata)
        if saved is None or saved.original() is not storage:  # another storage may have had this address
            length = storage.nbytes() // part.element_size()
            saved = known[storage._cdata] = _Saved(part.detach().as_strided((length,), (1,), 0), host)
        return saved, part.shape, part.stride(), part.storage_offset(), _wrapper_of(tensor)

    def unpack(packed: object) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        saved, shape, stride, offset, wrapped = cast(_Packed, packed)
        return wrapped(saved.get().as_strided(shape, stride, offset))

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def _storages_of(model: nn.Module) -> set[int]:
    """Return the ids of the storages of the parameters.

    The ids are valid only now: fully_shard replaces these storages during passes.
    """
    return {local(parameter).untyped_storage()._cdata for parameter in model.parameters()}


def _wrapper_of(tensor: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that makes a tensor like this one from its local part."""
    if not isinstance(tensor, DTensor):
        return lambda part: part
    mesh, placements, shape, stride = tensor.device_mesh, tensor.placements, tensor.shape, tensor.stride()
    return lambda part: DTensor.from_local(
        part, mesh, placements, run_check=False, shape=shape, stride=stride
    )
