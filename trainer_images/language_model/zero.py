"""ZeRO: the optimizer's state, gradients and parameters are divided among the data ranks.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import SGD, AdamW, Optimizer

from language_model.choices import Offload, Precision, Stepping, Strategy
from language_model.layout import Layout
from language_model.mesh import DATA, Mesh
from language_model.model import LanguageModel
from language_model.sharded_adamw import ShardedAdamW

BETAS, EPSILON, WEIGHT_DECAY = (0.9, 0.95), 1e-8, 0.1


def uses_fully_shard(layout: Layout) -> bool:
    """Return whether fully_shard divides the parameters, which needs several data ranks."""
    return layout.is_sharded and layout.data > 1


def shard(parts: Sequence[LanguageModel], layout: Layout, mesh: Mesh) -> None:
    """Shard the parameters of each part in place: layer by layer, and the other parameters together."""
    precise = layout.precision is Precision.FP32
    for part in parts:
        for module in (*part.layers.values(), part):
            fully_shard(
                module,
                mesh=mesh.along(DATA),
                reshard_after_forward=layout.strategy is Strategy.ZERO3,
                # Gradients are always summed in fp32.
                mp_policy=MixedPrecisionPolicy()
                if precise
                else MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
                offload_policy=CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
                if layout.offload is Offload.PARAMETERS
                else OffloadPolicy(),
            )


def optimizer_of(model: LanguageModel, layout: Layout, mesh: Mesh) -> Optimizer:
    """Return the optimizer of the model's parameters.

    With ZeRO and several data ranks, it updates only this data rank's share of the parameters.
    """
    options = _options(layout)
    if layout.strategy is Strategy.ZERO_REDUNDANCY_OPTIMIZER and layout.data > 1:
        return ZeroRedundancyOptimizer(
            model.parameters(), AdamW, process_group=mesh.along(DATA).get_group(), **options
        )
    if layout.has_flat_buckets:
        return ShardedAdamW(model, layout, mesh.along(DATA).get_group(), **options)
    return undivided(model, layout)


def undivided(model: nn.Module, layout: Layout) -> Optimizer:
    """Return the optimizer of all parameters of `model`, which may be a shard of a whole model."""
    if layout.optimizer is Stepping.SGD:
        return SGD(model.parameters(), lr=layout.lr)
    return AdamW(model.parameters(), **_options(layout))


def _options(layout: Layout) -> dict[str, Any]:
    return {"lr": layout.lr, "betas": BETAS, "eps": EPSILON, "weight_decay": WEIGHT_DECAY}


def own_share(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer that updates this process's share of the parameters and has their state."""
    return optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer
