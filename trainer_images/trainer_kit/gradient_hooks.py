"""Hooks of DistributedDataParallel that average gradients and count the sent bytes.

Without compression, no hook averages: DistributedDataParallel averages in its own way, and only the bytes are
counted.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainer_kit import traffic
from trainer_kit.averaging import Averaging, Compression

Average = torch.futures.Future[Tensor]


def register(averaging: Averaging, replica: DistributedDataParallel) -> None:
    """Register the hook of the compression, if there is one, and count the bytes that are sent.

    A wrapped model (`replica`) can have only one hook.
    """
    if averaging.compression is Compression.NONE:
        _count_without_hook(replica)
        return
    hook: _Hook
    if averaging.compression is Compression.POWERSGD:
        hook = _low_rank[replica.module] = LowRank(averaging, next(replica.parameters()).device)
    else:
        hook = _Hook(torch.float16 if averaging.compression is Compression.FP16 else torch.bfloat16)
    replica.register_comm_hook(None, hook.average)


class _Hook:
    """Averages gradients as numbers of fewer bits."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    # Without NCCL, PyTorch refuses its own hook for bf16, although gloo can sum bf16. PyTorch recognizes that
    # hook by the name of its function, so this function has another name.
    def average(
        self,
        _: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # missing in PyTorch's stubs
    ) -> Average:
        """Start to average a bucket."""
        gradients = bucket.buffer()
        # Divide first, so that the sum does not overflow.
        small = gradients.to(self._dtype).div_(dist.get_world_size())
        count(small.nbytes)
        summing = dist.all_reduce(small, async_op=True)
        assert summing is not None  # This process is a member of the group.
        averaged: Average = summing.get_future().then(lambda done: gradients.copy_(done.value()[0]))
        return averaged


class LowRank(_Hook):
    """Averages approximated gradients (PowerSGD).

    The error of the approximation is added to the gradients of the next step. This error differs between
    processes, and is part of a checkpoint.
    """

    def __init__(self, averaging: Averaging, device: torch.device) -> None:
        self._averaging = averaging
        self._device = device
        self._state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=averaging.powersgd_rank,
            start_powerSGD_iter=averaging.powersgd_start,
            random_seed=averaging.seed,
        )

    def average(self, _: object, bucket: dist.GradBucket) -> Average:  # type: ignore[name-defined]
        """Start to average a bucket."""
        state, gradients = self._state, bucket.buffer()
        is_whole = state.iter < state.start_powerSGD_iter
        before = state.total_numel_after_compression
        averaging: Average = powerSGD_hook.powerSGD_hook(state, bucket)
        sent = gradients.numel() if is_whole else state.total_numel_after_compression - before
        count(sent * gradients.element_size())
        return averaging

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this process.

        The numbers in `fits` are the same in all processes, and must be the same when the state is restored.
        """
        return {
            "fits": self._fits(),
            "iterations": self._state.iter,
            "errors": self._state.error_dict,
            "p": self._state.p_memory_dict,
            "q": self._state.q_memory_dict,
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Restore the state that this rank has saved.

        Return whether the state fits: the size of the group, BUCKET_MB and POWERSGD_RANK must be the same as
        when it was saved. If it does not fit, PowerSGD begins anew in all processes.
        """
        if state.get("fits") != self._fits():
            return False
        self._state.iter = state["iterations"]
        self._state.error_dict = self._placed(state["errors"])
        self._state.p_memory_dict = self._placed(state["p"])
        self._state.q_memory_dict = self._placed(state["q"])
        return True

    def _placed(self, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
        return {bucket: tensor.to(self._device) for bucket, tensor in tensors.items()}

    def _fits(self) -> list[int]:
        averaging = self._averaging
        return [dist.get_world_size(), averaging.bucket_mb or 0, averaging.powersgd_rank]


_low_rank: WeakKeyDictionary[nn.Module, LowRank] = WeakKeyDictionary()


def low_rank_of(model: nn.Module) -> LowRank | None:
    """Return the PowerSGD hook of the wrapper of `model`; None without such a hook."""
    return _low_rank.get(model)


def count(size: int) -> None:
    """Count the all-reduce of `size` bytes. Each of the n processes sends 2(n-1)/n times `size` bytes.

    This is the least possible, and the amount that a ring sends (Patarasuk and Yuan, 2009).
    """
    ranks = dist.get_world_size()
    traffic.OF_PROCESS.add(2 * (ranks - 1) / ranks * size)


def _count_without_hook(replica: DistributedDataParallel) -> None:
    """Count one all-reduce of all gradients for each forward pass whose backward pass will average them."""
    size = sum(parameter.nbytes for parameter in replica.parameters() if parameter.requires_grad)

    def before_forward(*_: object) -> None:
        if torch.is_grad_enabled() and replica.require_backward_grad_sync:
            count(size)

    replica.register_forward_pre_hook(before_forward)
