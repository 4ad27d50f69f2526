"""Counts the bytes that processes send to each other.

Each operation is counted when PyTorch calls it, by the size of its tensors. For S bytes among n ranks, the
count is what each rank sends in the bandwidth-optimal algorithm, a ring: 2 (n-1)/n S for an all-reduce, and
(n-1)/n S for an all-gather or a reduce-scatter (P. Patarasuk and X. Yuan, "Bandwidth Optimal All-reduce
Algorithms for Clusters of Workstations", 2009). A broadcast is counted at its root, as n-1 times S, and a
reduce is counted as S at each rank except its root.
"""

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that this process sends while the context is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent: defaultdict[str, float] = defaultdict(float)
        """The bytes by kind of operation."""
        self.messages = 0
        """The number of point-to-point messages, such as those to the next stage of a pipeline."""

    @property
    def bytes_sent(self) -> int:
        """The total of all kinds."""
        return round(sum(self.sent.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count what it sends.

        An operation on DTensors is not counted itself: PyTorch replaces it by operations on their local
        tensors, which are counted.
        """
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        if "c10d" in getattr(func, "namespace", ""):
            self._count(func.overloadpacket.__name__.strip("_"), args, result)
        return result

    def _count(self, name: str, args: Any, result: Any) -> None:
        match name:
            case "allreduce" | "all_reduce":
                self.sent["all-reduce"] += 2 * _share(args) * _size_of(args[0])
            case "allgather_base" | "allgather":
                self.sent["all-gather"] += _others(args) * _size_of(args[1])
            case "all_gather_into_tensor":
                self.sent["all-gather"] += _others(args) * _size_of(args[0])
            case "reduce_scatter_base" | "reduce_scatter":
                self.sent["reduce-scatter"] += _share(args) * _size_of(args[1])
            case "reduce_scatter_tensor":
                self.sent["reduce-scatter"] += _share(args) * _size_of(args[0])
            case "broadcast":
                if args[2] == _group_of(args).rank():
                    self.sent["broadcast"] += _others(args) * _size_of(args[0])
            case "reduce":
                if args[3] != _group_of(args).rank():
                    self.sent["reduce"] += _size_of(args[0])
            case "send":
                self.sent["send"] += _size_of(args[0])
                self.messages += 1
            case "alltoall_base" | "all_to_all_single":
                self.sent["all-to-all"] += _share(args) * _size_of(result)


def _others(args: Any) -> int:
    """Return the number of other ranks in the group of the operation."""
    return _group_of(args).size() - 1


def _share(args: Any) -> float:
    """Return (n-1)/n for the n ranks in the group of the operation."""
    return _others(args) / _group_of(args).size()


def _size_of(tensors: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor))


def _group_of(args: Any) -> dist.ProcessGroup:
    """Return the operation's process group. It is one of the arguments, or its name is the last argument."""
    for argument in args:
        if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
            return dist.ProcessGroup.unbox(argument)
    return _resolve_process_group(args[-1])
