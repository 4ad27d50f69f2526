"""What saves memory in every strategy: activations computed anew, passes in fewer bits, state on the host."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from language_model.choices import Offload, Precision
from language_model.layout import Layout
from language_model.model import LanguageModel
from language_model.zero import uses_fully_shard

_aten = torch.ops.aten
DEAR = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
]
"""What `selective` keeps: products of matrices take most of the time; norms, sums and GELU take memory."""


def recompute(model: LanguageModel, layout: Layout) -> None:
    """Makes the layers that CHECKPOINTING names keep their input only, and compute the rest anew."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # nothing is random
    every = layout.recomputed_every
    if layout.checkpointing == "selective":
        every = 1
        options["context_fn"] = partial(create_selective_checkpoint_contexts, DEAR)
    for number, layer in model.layers.items():
        if every and int(number) % every == 0:
            _recompute(layer, options)


def _recompute(layer: nn.Module, options: dict[str, Any]) -> None:
    layer.forward = partial(checkpoint, layer.forward, **options)


def autocast(layout: Layout, device: torch.device) -> AbstractContextManager[object]:
    """In this context passes compute in PRECISION; what fully_shard has sharded is cast by itself."""
    if layout.precision is Precision.FP32 or uses_fully_shard(layout):
        return nullcontext()
    dtype = torch.bfloat16 if layout.precision is Precision.BF16 else torch.float16
    return torch.autocast(device.type, dtype)


def offload_state(optimizer: Optimizer, layout: Layout) -> None:
    """Where OFFLOAD=optimizer, keeps the optimizer's state on the host but for the length of its steps."""
    if layout.offload is Offload.OPTIMIZER:
        optimizer.register_step_pre_hook(lambda optimizer, *_: _move_state(optimizer, to_host=False))
        optimizer.register_step_post_hook(lambda optimizer, *_: _move_state(optimizer, to_host=True))


def _move_state(optimizer: Optimizer, *, to_host: bool) -> None:
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if name != "step":  # which is on the host anyway
                state[name] = value.to("cpu" if to_host else parameter.device)
