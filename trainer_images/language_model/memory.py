"""Saves memory in every strategy: recomputed activations, passes in fewer bits, state on the host."""

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
"""The operations whose results `selective` keeps: matrix products, which take most of the time."""


def recompute(model: LanguageModel, layout: Layout) -> None:
    """Let the layers of CHECKPOINTING keep only their input, and recompute the rest."""
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
    """Return a context in which passes compute in PRECISION. Modules of fully_shard cast by themselves."""
    if layout.precision is Precision.FP32 or uses_fully_shard(layout):
        return nullcontext()
    dtype = torch.bfloat16 if layout.precision is Precision.BF16 else torch.float16
    return torch.autocast(device.type, dtype)


def offload_state(optimizer: Optimizer, layout: Layout) -> None:
    """With OFFLOAD=optimizer, keep the optimizer's state on the host except during its steps."""
    if layout.offload is Offload.OPTIMIZER:
        optimizer.register_step_pre_hook(lambda optimizer, *_: _move_state(optimizer, to_host=False))
        optimizer.register_step_post_hook(lambda optimizer, *_: _move_state(optimizer, to_host=True))


def _move_state(optimizer: Optimizer, *, to_host: bool) -> None:
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if name != "step":  # it is always on the host
                state[name] = value.to("cpu" if to_host else parameter.device)
