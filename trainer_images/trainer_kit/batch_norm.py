"""Batch normalization with the statistics of the whole group: 4 ranks with 16 examples each give the same
statistics as one rank with 64.

    model = batch_norm.over_group(ResNet())
    replica = group.wrap(model)

S. Ioffe and C. Szegedy, "Batch Normalization", ICML 2015. PyTorch's SyncBatchNorm needs GPUs. This layer also
works on CPUs, with gloo.
"""

import logging
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

log = logging.getLogger(__name__)


class GroupBatchNorm(_BatchNorm):
    """Normalizes with the mean and variance of the examples of all ranks. Its state is that of nn.BatchNorm.

    The examples are the first dimension, and the channels the second one. In training, all ranks must call
    their layers in the same order. Ranks may have different numbers of examples. In evaluation, the layer
    does the same as nn.BatchNorm.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # its name in nn.BatchNorm
        """Return the normalized examples.

        Raises ValueError if the input has fewer than two dimensions, or, in training, if a channel has fewer
        than two values in all ranks together.
        """
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        channels = input.shape[1]
        axes = [axis for axis in range(input.dim()) if axis != 1]
        shape = [1, channels, *[1] * (input.dim() - 2)]
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        # Exchange the mean first, and sum the deviations from it: sums of large squares would lose precision.
        count, about = self._count_and_mean(wide, axes)
        if count < 2:
            raise ValueError(f"{type(self).__name__} needs at least two values of each channel in training")
        shifted = wide - about.view(shape)
        sums = _summed(torch.cat([shifted.sum(axes), shifted.square().sum(axes)]))
        mean, square = sums[:channels] / count, sums[channels:] / count
        variance = (square - mean.square()).clamp(min=0)
        self._follow(mean.detach() + about, variance.detach() * count / (count - 1))
        normal = (shifted - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        if self.weight is not None:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)

    @torch.no_grad()
    def _count_and_mean(self, values: Tensor, axes: list[int]) -> tuple[float, Tensor]:
        """Return the number of values of a channel in all ranks, and the mean of each channel."""
        own = values.sum(axes, dtype=torch.float64)
        together = torch.cat([own, own.new_full((1,), values.numel() // values.shape[1])])
        dist.all_reduce(together)
        count = together[-1].item()
        return count, (together[:-1] / count).to(values.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, as nn.BatchNorm does."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        if input.dim() < 2:
            raise ValueError(f"expected examples of several channels, got {input.dim()} dimension")


def over_group(model: nn.Module) -> nn.Module:
    """Replace each layer of batch normalization in the model by a GroupBatchNorm, and return the model.

    The model is changed in place; only a model that is itself such a layer is replaced as a whole. Layers of
    nn.SyncBatchNorm stay. Parameters, statistics and their names stay. Call this before `group.wrap`.
    """
    return _replaced(model, {})


def _replaced(model: nn.Module, known: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return the module with its layers of batch normalization replaced.

    `known` maps each replaced layer to its new layer, because a layer may have several names.
    """
    if _is_local(model):
        assert isinstance(model, _BatchNorm)
        if model in known:
            return known[model]
        grouped = GroupBatchNorm(
            model.num_features, model.eps, model.momentum, model.affine, model.track_running_stats
        )
        grouped.train(model.training)
        for name in ("weight", "bias"):
            setattr(grouped, name, getattr(model, name))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(grouped, name, getattr(model, name))
        known[model] = grouped
        return grouped
    for name, child in list(model._modules.items()):  # named_children() leaves out a second name of a layer
        if child is not None:
            setattr(model, name, _replaced(child, known))
    return model


def warn_of_local(model: nn.Module) -> None:
    """Warn about layers of batch normalization whose statistics would come from only one rank's examples."""
    local = [name or type(model).__name__ for name, module in model.named_modules() if _is_local(module)]
    if local:
        further = f" and {len(local) - 1} more" if len(local) > 1 else ""
        log.warning(
            "%s%s: the statistics are those of each rank's own examples, which are few. "
            "trainer_kit.batch_norm.over_group(model) takes those of all ranks",
            local[0],
            further,
        )


def _is_local(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and not isinstance(module, GroupBatchNorm | nn.SyncBatchNorm)


def _summed(values: Tensor) -> Tensor:
    """Return the sums of the values over all ranks. The result is differentiable."""
    sums: Tensor = _Summed.apply(values)  # type: ignore[no-untyped-call]
    return sums


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        sums = values.contiguous().clone()
        dist.all_reduce(sums)
        return sums

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Tensor:
        [gradient] = gradients
        sums: Tensor = gradient.contiguous().clone()
        dist.all_reduce(sums)
        return sums
