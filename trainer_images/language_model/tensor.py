"""Tensor parallel: each rank has some columns of a layer's first matrices, and some rows of the second ones.

M. Shoeybi et al., "Megatron-LM", 2019: one sum over the ranks after attention and one after feed-forward, and
two in the backward pass. V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models", 2022: for norms, dropout and residuals, each rank has only its share of the sequence.
"""

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from language_model.dropout import Dropout
from language_model.layout import Layout
from language_model.mesh import TENSOR, Mesh
from language_model.model import LanguageModel


def cut(model: LanguageModel, layout: Layout, mesh: Mesh) -> None:
    """Replace each matrix of `model` by this tensor rank's share of it, in place.

    Masks of dropout are divided like the activations.
    """
    parallelize_module(model, mesh.along(TENSOR), _plan(model, layout))
    for name, module in model.named_modules():
        if isinstance(module, Dropout) and (layout.sequence_parallel or name.endswith("attention.dropout")):
            module.share = mesh.rank(TENSOR)


def _plan(model: LanguageModel, layout: Layout) -> dict[str, ParallelStyle]:
    """Return how each module is divided.

    After the second matrices, activations are whole or, with SEQUENCE_PARALLEL, parts of the sequence.
    """
    between = Shard(1) if layout.sequence_parallel else Replicate()
    norm = SequenceParallel(use_local_output=True) if layout.sequence_parallel else Replicated()
    first = ColwiseParallel(input_layouts=between)
    second = RowwiseParallel(output_layouts=between)
    lookup = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    scores = (
        ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
        if layout.loss_parallel
        else ColwiseParallel(input_layouts=between, output_layouts=Replicate())
    )
    plan: dict[str, ParallelStyle] = {}
    if model.embedding is not None:
        plan |= {"embedding.tokens": lookup, "embedding.places": lookup}
    for number in model.layers:
        plan |= {
            f"layers.{number}.attention_norm": norm,
            f"layers.{number}.attention.query_key_value": first,
            f"layers.{number}.attention.output": second,
            f"layers.{number}.feed_forward_norm": norm,
            f"layers.{number}.feed_forward.up": first,
            f"layers.{number}.feed_forward.down": second,
        }
    if model.head is not None:
        plan |= {"head.norm": norm, "head.output": scores}
    return plan


class Replicated(ParallelStyle):
    """A module that every tensor rank computes as a whole.

    Its weights become DTensors, because an optimizer does not support a mix of plain tensors and DTensors.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def replicate(_: str, module: nn.Module, mesh: DeviceMesh) -> None:
            for name, weight in module.named_parameters(recurse=False):
                whole = distribute_tensor(weight.detach(), mesh, [Replicate()])
                module.register_parameter(name, nn.Parameter(whole))

        def take(_: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> DTensor:
            return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

        def give(_: nn.Module, output: DTensor, __: DeviceMesh) -> Any:
            return output.to_local()

        return distribute_module(module, device_mesh, replicate, take, give)  # type: ignore[arg-type]
