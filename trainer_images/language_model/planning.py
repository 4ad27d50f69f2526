"""The planner of `trainctl plan`: it finds the layouts of a model that fit a device, with their costs.

It uses the formulas of `theory`, which tests and benchmarks compare with measurements. It does not need
PyTorch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from trainer_kit.errors import ParameterError

from language_model import theory
from language_model.choices import Offload, Precision, Schedule, Strategy
from language_model.layout import Layout

SYNCHRONOUS = (Strategy.DDP, Strategy.ZERO1, Strategy.ZERO2, Strategy.SHARD_GRAD_OP, Strategy.ZERO3)
"""The strategies to choose from, the simplest first. They train the same model as one process does.

Averaging, gossip, parameter servers and PipeDream train in other ways. ZeroRedundancyOptimizer is left out,
because ZeRO-1 needs the same memory and sends less.
"""

RESERVE = 0.1
"""The share of a device's memory for the runtime: its context, gradient buckets and fragmentation."""


@dataclass(frozen=True)
class Choice:
    """One layout and its costs. Memory is in bytes, for the rank that needs the most."""

    layout: Layout
    model: theory.Memory
    activations: float
    bytes_sent: float
    """Bytes that a rank sends per step, on average."""
    bubble: float
    """The share of the time in which a rank waits for other ranks of its pipeline."""
    recomputed: float
    """Recomputed work, as a share of a step's work."""

    @property
    def parameters(self) -> dict[str, str]:
        """STRATEGY, and the other parameters of the layout that differ from their defaults.

        Parameters of the model are left out, except PRECISION.
        """
        names = (
            *("strategy", "pipeline", "tensor", "sequence_parallel", "loss_parallel", "micro_batches"),
            *("checkpointing", "offload", "precision"),
        )
        values = {name: getattr(self.layout, name) for name in names}
        plain = {
            **{"pipeline": 1, "tensor": 1, "micro_batches": 1},
            **{"checkpointing": "none", "offload": "none", "precision": Precision.FP32},
        }
        return {
            name.upper(): "1" if value is True else str(value)
            for name, value in values.items()
            if value is not False and plain.get(name) != value
        }

    @property
    def memory_bytes(self) -> float:
        """The device memory that the layout needs."""
        held = self.model
        on_host = self.layout.offload
        parts = {
            Offload.NONE: (held.parameters, held.gradients, held.optimizer),
            Offload.OPTIMIZER: (held.parameters, held.gradients),
            Offload.PARAMETERS: (),
            Offload.ACTIVATIONS: (held.parameters, held.gradients, held.optimizer),
            Offload.LAYERS: (),
        }[on_host]
        return sum(parts) + self.activations + theory.gathered(self.layout)

    @property
    def slowdown(self) -> float:
        """The time of a step relative to one without recomputation and waiting. The network is left out."""
        return (1 + self.recomputed) / (1 - self.bubble)

    def fits(self, device: float) -> bool:
        """Return whether the layout fits on a device with this memory in bytes."""
        return self.memory_bytes <= device * (1 - RESERVE)


def price(layout: Layout) -> Choice:
    """Compute the costs of a layout."""
    return Choice(
        layout=layout,
        model=theory.memory(layout),
        activations=theory.activations(layout),
        bytes_sent=theory.bytes_sent(layout),
        bubble=theory.bubble(layout),
        recomputed=theory.recomputed(layout),
    )


def plan(
    instances: int,
    device_memory: float,
    *,
    layers: Annotated[int, typer.Option(help="Layers of the model.", min=1, max=10_000)] = 4,
    heads: Annotated[int, typer.Option(help="Attention heads per layer.", min=1, max=10_000)] = 4,
    width: Annotated[int, typer.Option(help="Width of the vectors.", min=1, max=1_000_000)] = 64,
    sequence: Annotated[int, typer.Option(help="Tokens per example.", min=1, max=4095)] = 64,
    batch: Annotated[int, typer.Option(help="Examples per step of the group.", min=1, max=1_000_000)] = 16,
    precision: Annotated[str, typer.Option(help="Format of the passes: fp32, bf16 or fp16.")] = "fp32",
) -> tuple[list[Choice], Choice | None]:
    """This is the planner of the algorithm language-model.

    The first column has parameters for `trainctl submit`. The choices are sorted: those without OFFLOAD
    first, then by the time lost to waiting and recomputation, then by traffic.
    """
    if precision not in set(Precision):
        raise ValueError(f"--precision must be one of {', '.join(Precision)}, but is {precision!r}")
    try:
        model = Layout(
            world_size=1,
            layers=layers,
            heads=heads,
            width=width,
            context=sequence,
            batch_size=batch,
            precision=Precision(precision),
        )
    except ParameterError as error:
        raise ValueError(str(error)) from error
    found = choices(model, instances, device_memory)
    if found:
        return found, None
    smallest = least(model, instances)
    if smallest is None:
        raise ValueError(
            f"no layout of this model is valid on {instances} devices, with any memory: the number must be "
            f"the product of data ranks that divide --batch {batch}, tensor ranks that divide --heads "
            f"{heads} and --sequence {sequence}, and pipeline ranks that divide --layers {layers}"
        )
    return found, smallest


def choices(model: Layout, ranks: int, device: float) -> list[Choice]:
    """Find layouts of `model` on `ranks` ranks that fit devices of `device` bytes, the best first.

    The layouts are sorted: those without OFFLOAD first, then by the time lost to waiting and recomputation,
    by traffic, by the simplicity of the strategy, and by memory. Of the layouts with the same strategy and
    the same numbers of pipeline and tensor ranks, only the first is returned.
    """
    found: dict[tuple[object, ...], Choice] = {}
    for layout in _layouts(model, ranks):
        choice = price(layout)
        if not choice.fits(device):
            continue
        shape = (layout.strategy, layout.pipeline, layout.tensor)
        known = found.get(shape)
        if known is None or _cost(choice) < _cost(known):
            found[shape] = choice
    return sorted(found.values(), key=_cost)


def least(model: Layout, ranks: int) -> Choice | None:
    """Return the considered layout that needs the least memory, or None if none is valid."""
    priced = (price(layout) for layout in _layouts(model, ranks))
    return min(priced, key=lambda choice: choice.memory_bytes, default=None)


def _cost(choice: Choice) -> tuple[float, ...]:
    is_offloaded = choice.layout.offload is not Offload.NONE
    simplicity = SYNCHRONOUS.index(choice.layout.strategy)
    return (is_offloaded, round(choice.slowdown, 3), choice.bytes_sent, simplicity, choice.memory_bytes)


def _layouts(model: Layout, ranks: int) -> Iterator[Layout]:
    """Yield the valid layouts among those that the planner considers.

    They have the model and the batch of the layout `model`.
    """
    for pipeline in _divisors(ranks):
        for tensor in _divisors(ranks // pipeline):
            for micro_batches in _micro_batches(model, ranks // (pipeline * tensor)):
                for strategy in SYNCHRONOUS:
                    for checkpointing in ("none", "keep_products", "full"):
                        for offload in Offload:
                            try:
                                yield replace(
                                    model,
                                    world_size=ranks,
                                    strategy=strategy,
                                    pipeline=pipeline,
                                    tensor=tensor,
                                    schedule=Schedule.ONE_FORWARD_ONE_BACKWARD,
                                    sequence_parallel=tensor > 1,
                                    loss_parallel=tensor > 1 and pipeline == 1,
                                    micro_batches=micro_batches,
                                    checkpointing=checkpointing,
                                    offload=offload,
                                )
                            except ParameterError:
                                continue


def _micro_batches(model: Layout, data: int) -> list[int]:
    """Return the possible numbers of micro-batches; none if `data` does not divide the batch."""
    return _divisors(model.batch_size // data) if model.batch_size % data == 0 else []


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
