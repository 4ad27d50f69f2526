"""The planner of `trainctl plan`: which layouts of a model fit a device, and what each costs.

By the formulas of `theory`, which the tests and benchmarks hold against what is counted. Needs no PyTorch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from trainer_kit.errors import ParameterError

from language_model import theory
from language_model.choices import Offload, Precision, Schedule, Strategy
from language_model.layout import Layout

SYNCHRONOUS = (Strategy.DDP, Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)
"""What comes to the same model as one process; a parameter server is another algorithm."""

RESERVE = 0.1
"""The share of a device that is left to the runtime: its context, buckets of gradients, fragments."""


@dataclass(frozen=True)
class Choice:
    """One layout, and what it costs. Memory is in bytes, of the rank that needs most."""

    layout: Layout
    model: theory.Memory
    activations: float
    bytes_sent: float
    """By a rank in a step, on average."""
    bubble: float
    """The share of its time that a rank waits for others of its pipeline."""
    recomputed: float
    """Work that is done twice, as a share of a step's."""

    @property
    def parameters(self) -> dict[str, str]:
        """Those that make the layout, but for the model's and defaults."""
        names = ("strategy", "pipeline", "tensor", "sequence_parallel", "loss_parallel", "micro_batches")
        values = {name: getattr(self.layout, name) for name in (*names, "checkpointing", "offload")}
        plain = {"pipeline": 1, "tensor": 1, "micro_batches": 1, "checkpointing": "none", "offload": "none"}
        return {
            name.upper(): "1" if value is True else str(value)
            for name, value in values.items()
            if value is not False and plain.get(name) != value
        }

    @property
    def memory_bytes(self) -> float:
        """All of it."""
        held = self.model
        on_host = self.layout.offload
        parts = {
            Offload.NONE: (held.parameters, held.gradients, held.optimizer),
            Offload.OPTIMIZER: (held.parameters, held.gradients),
            Offload.PARAMETERS: (),
        }[on_host]
        return sum(parts) + self.activations + theory.gathered(self.layout)

    @property
    def slowdown(self) -> float:
        """How much longer a step takes than its bare work: work done twice, and waiting; not the network."""
        return (1 + self.recomputed) / (1 - self.bubble)

    def fits(self, device: float) -> bool:
        """Whether a device of so many bytes holds it."""
        return self.memory_bytes <= device * (1 - RESERVE)


def price(layout: Layout) -> Choice:
    """What a layout costs."""
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
    layers: Annotated[int, typer.Option(help="Of the model.", min=1, max=10_000)] = 4,
    heads: Annotated[int, typer.Option(help="Of its attention.", min=1, max=10_000)] = 4,
    width: Annotated[int, typer.Option(help="Of its vectors.", min=1, max=1_000_000)] = 64,
    sequence: Annotated[int, typer.Option(help="Tokens of an example.", min=1, max=4095)] = 64,
    batch: Annotated[int, typer.Option(help="Examples of a step, in all.", min=1, max=1_000_000)] = 16,
    precision: Annotated[str, typer.Option(help="fp32 or bf16, of the passes.")] = "fp32",
) -> tuple[list[Choice], Choice | None]:
    """For the algorithm language-model: the first column holds the parameters to submit it with.

    The best is first: what loses least time to waiting and to work done twice, then what sends least.
    """
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
    return found, None if found else least(model, instances)


def choices(model: Layout, ranks: int, device: float) -> list[Choice]:
    """Every layout of `model` on so many ranks that fits devices of so many bytes, the best first.

    Best is what loses least time to waiting and to work done twice, then what sends least. Of layouts
    that differ in nothing but what they would not need (work done twice, state on the host), the plainest.
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
    """What needs the least memory of a device, whether it fits or not; None if there is no layout at all."""
    priced = (price(layout) for layout in _layouts(model, ranks))
    return min(priced, key=lambda choice: choice.memory_bytes, default=None)


def _cost(choice: Choice) -> tuple[float, ...]:
    is_offloaded = choice.layout.offload is not Offload.NONE
    return (is_offloaded, round(choice.slowdown, 3), choice.bytes_sent, choice.memory_bytes)


def _layouts(model: Layout, ranks: int) -> Iterator[Layout]:
    """All that the rules allow, of the same model and batch."""
    for pipeline in _divisors(ranks):
        for tensor in _divisors(ranks // pipeline):
            for micro_batches in _micro_batches(model, ranks // (pipeline * tensor)):
                for strategy in SYNCHRONOUS:
                    for checkpointing in ("none", "selective", "full"):
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
    """How a data rank's share of the batch can be divided."""
    return _divisors(model.batch_size // data) if model.batch_size % data == 0 else []


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
