"""Saves memory: recomputes activations, computes in fewer bits, and keeps optimizer states on the host."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from language_model.choices import Offload, Precision
from language_model.dropout import RandomState
from language_model.host import Host
from language_model.layout import Layout
from language_model.memory_meter import state_of
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
"""The operations whose results `keep_products` keeps: matrix products and fused attention, which take most of
the time."""


def recompute(model: LanguageModel, layout: Layout) -> None:
    """Let the layers that CHECKPOINTING selects drop activations, and recompute them for the backward pass.

    * full, every:N: whole layers, which keep only their input (Chen et al., "Training Deep Nets with
      Sublinear Memory Cost", 2016).
    * selective: the core of attention, which has the most activations relative to its operations (Korthikanti
      et al., "Reducing Activation Recomputation in Large Transformer Models", 2022).
    * keep_products: whole layers, which keep their input and the results of the operations in DEAR.
    """
    keeps_products = layout.checkpointing == "keep_products"
    every = 1 if keeps_products else layout.recomputed_every
    context = partial(_contexts, model.random_state, keeps_products=keeps_products)
    # `context` restores the state of our own random numbers, which PyTorch does not know.
    again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False, context_fn=context)
    for number, layer in model.layers.items():
        if layout.checkpointing == "selective":
            attention: Any = layer.attention
            attention.core = partial(again, attention.core)
        elif every and int(number) % every == 0:
            layer.forward = partial(again, layer.forward)


def _contexts(
    state: RandomState, *, keeps_products: bool
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of a forward pass and of its recomputation."""
    contexts = [state.kept()]
    if keeps_products:
        contexts.append(create_selective_checkpoint_contexts(DEAR))  # type: ignore[no-untyped-call]
    return tuple(_together(each) for each in zip(*contexts, strict=True))  # type: ignore[return-value]


@contextmanager
def _together(contexts: Iterable[AbstractContextManager[None]]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def autocast(layout: Layout, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which passes compute in PRECISION. Modules of fully_shard cast by themselves."""
    if layout.precision is Precision.FP32 or uses_fully_shard(layout):
        return nullcontext()
    dtype = torch.bfloat16 if layout.precision is Precision.BF16 else torch.float16
    return torch.autocast(device.type, dtype)


def offload_state(optimizer: Optimizer, layout: Layout, host: Host) -> None:
    """Keep the optimizer's state on the host, if OFFLOAD is layers or optimizer.

    With OFFLOAD=layers, the state is always on the host; with OFFLOAD=optimizer, only between steps.
    """
    if layout.offload is Offload.OPTIMIZER:
        optimizer.register_step_pre_hook(lambda optimizer, *_: _move_state(optimizer, host.give))
        optimizer.register_step_post_hook(lambda optimizer, *_: _move_state(optimizer, host.take))
    if layout.is_layer_by_layer:
        optimizer.register_step_post_hook(lambda optimizer, *_: host.keep(state_of(optimizer)))


def _move_state(optimizer: Optimizer, move: Callable[[Tensor], Tensor]) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step":  # the number of steps is always on the host
                state[name] = move(value)
