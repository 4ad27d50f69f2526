"""The rules for combinations of CHECKPOINTING and OFFLOAD with other parameters. See `layout`."""

from typing import TYPE_CHECKING

from trainer_kit.averaging import Compression
from trainer_kit.errors import ParameterError

from language_model.all_reduce.topology import Topology
from language_model.choices import Offload, Precision, Strategy

if TYPE_CHECKING:
    from language_model.layout import Layout

CHECKPOINTING = ("none", "full", "selective", "keep_products")
"""The values of CHECKPOINTING that have no number."""


def check(layout: "Layout") -> None:
    """Raise ParameterError if the layout cannot save memory in the requested way."""
    _checkpointing_is_known(layout)
    match layout.offload:
        case Offload.PARAMETERS:
            _parameters_can_move(layout)
        case Offload.OPTIMIZER:
            _optimizer_can_move(layout)
        case Offload.ACTIVATIONS:
            _activations_can_move(layout)
        case Offload.LAYERS:
            _layers_can_move(layout)


def _checkpointing_is_known(layout: "Layout") -> None:
    kind, _, number = layout.checkpointing.partition(":")
    plain = layout.checkpointing in CHECKPOINTING
    if not plain and not (kind == "every" and number.isdecimal() and 1 <= int(number) <= layout.layers):
        raise ParameterError(
            "CHECKPOINTING must be none, full, selective, keep_products, or every:N with N from 1 to LAYERS "
            f"{layout.layers}, but is {layout.checkpointing!r}"
        )


def _parameters_can_move(layout: "Layout") -> None:
    if not layout.is_sharded:
        raise ParameterError(
            f"OFFLOAD=parameters needs STRATEGY=shard_grad_op or zero3, but STRATEGY is {layout.strategy}"
        )
    if layout.data == 1:
        raise ParameterError(
            "OFFLOAD=parameters needs several data ranks, but there is 1: WORLD_SIZE "
            f"{layout.world_size} / (PIPELINE {layout.pipeline} x TENSOR {layout.tensor})"
        )


def _optimizer_can_move(layout: "Layout") -> None:
    if layout.is_sharded or (layout.tensor > 1 and not layout.has_flat_buckets):
        raise ParameterError(
            "OFFLOAD=optimizer needs TENSOR 1 and a STRATEGY other than shard_grad_op and zero3, or several "
            f"data ranks and STRATEGY zero1 or zero2, but STRATEGY is {layout.strategy}, TENSOR "
            f"{layout.tensor} and the number of data ranks {layout.data}; OFFLOAD=parameters also moves the "
            "optimizer"
        )


def _activations_can_move(layout: "Layout") -> None:
    if layout.checkpointing == "keep_products":
        raise ParameterError(
            "OFFLOAD=activations needs CHECKPOINTING=none, full, selective or every:N, but it is "
            "keep_products: PyTorch keeps the products where they cannot be moved"
        )


def _layers_can_move(layout: "Layout") -> None:
    """Refuse parameters that divide or recompute layers, or need all gradients on the device."""
    for name, value, allowed, why in (
        ("STRATEGY", layout.strategy, Strategy.DDP, "each rank keeps the whole model on its host"),
        ("PIPELINE", layout.pipeline, 1, "each rank computes all layers"),
        ("TENSOR", layout.tensor, 1, "each rank computes whole layers"),
        ("CHECKPOINTING", layout.checkpointing, "none", "each layer is recomputed from its input anyway"),
        ("GRADIENT_COMPRESSION", layout.gradient_compression, Compression.NONE, _BY_LAYER),
        ("ALL_REDUCE", layout.all_reduce, Topology.LIBRARY, _BY_LAYER),
    ):
        if value != allowed:
            raise ParameterError(f"OFFLOAD=layers needs {name}={allowed}, but it is {value}: {why}")
    if layout.precision is Precision.FP16:
        raise ParameterError(
            "OFFLOAD=layers needs PRECISION=fp32 or bf16, but it is fp16: a scaler needs all gradients on "
            "the device"
        )


_BY_LAYER = "gradients are averaged layer by layer, without DistributedDataParallel"
