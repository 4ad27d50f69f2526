"""Memory of a plan compared with measurements, and the layouts that it finds."""

from dataclasses import replace

import pytest
import torch
from language_model import planning, theory
from language_model.choices import Offload, Schedule, Strategy
from language_model.layout import Layout
from language_model.memory import recompute
from language_model.memory_meter import MemoryMeter
from language_model.model import build, loss_of

MODELS = (
    Layout(layers=4, width=64, context=64, batch_size=16),
    Layout(layers=8, width=128, context=128, batch_size=8),
    Layout(layers=8, width=256, context=64, batch_size=8),
)
GIGABYTE = 10.0**9
LARGE = Layout(layers=24, heads=16, width=2048, context=1024, batch_size=64)


def counted(layout: Layout) -> int:
    """Return the peak memory of a step besides parameters and gradients, in bytes."""
    model = build(layout, range(layout.layers), torch.device("cpu"))
    recompute(model, layout)
    tokens = torch.randint(0, 256, (layout.batch_size, layout.context + 1))
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    kept = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
    with MemoryMeter(kept) as memory:
        torch.autograd.backward(loss_of(model(tokens[:, :-1]), tokens[:, 1:]))
    return int(memory.peak - sum(tensor.nbytes for tensor in kept))


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full", "every:2"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"width {model.width}")
def test_activations_are_those_of_the_formula(model: Layout, checkpointing: str) -> None:
    layout = replace(model, checkpointing=checkpointing)
    assert theory.activations(layout) == pytest.approx(counted(layout), rel=0.1)


def test_the_schedule_of_a_pipeline_determines_the_memory_of_micro_batches() -> None:
    short = replace(LARGE, world_size=4, pipeline=4, micro_batches=16)
    all_at_once = replace(short, schedule=Schedule.GPIPE)
    assert theory.activations(all_at_once) > 3.5 * theory.activations(short)


def test_found_layouts_fit_and_are_valid() -> None:
    device = 16 * GIGABYTE
    found = planning.choices(LARGE, 8, device)
    assert found
    for choice in found:
        assert choice.memory_bytes <= device * (1 - planning.RESERVE)
        assert choice.layout.data * choice.layout.pipeline * choice.layout.tensor == 8
    assert found[0].slowdown == min(choice.slowdown for choice in found)
    shapes = [(c.layout.strategy, c.layout.pipeline, c.layout.tensor) for c in found]
    assert len(set(shapes)) == len(shapes)


def test_a_large_device_needs_only_data_parallelism() -> None:
    best = planning.choices(LARGE, 8, 1000 * GIGABYTE)[0]
    assert (best.layout.pipeline, best.layout.tensor, best.layout.checkpointing) == (1, 1, "none")
    assert best.layout.strategy is Strategy.DDP
    assert best.layout.offload is Offload.NONE


def test_less_memory_needs_more_measures() -> None:
    def strategies(gigabytes: float) -> set[Strategy]:
        found = planning.choices(LARGE, 8, gigabytes * GIGABYTE)
        return {c.layout.strategy for c in found if c.layout.pipeline == c.layout.tensor == 1}

    assert strategies(100) == {*planning.SYNCHRONOUS}
    assert Strategy.DDP not in {
        c.layout.strategy
        for c in planning.choices(LARGE, 8, 3 * GIGABYTE)
        if c.layout.offload is Offload.NONE and c.layout.pipeline == 1 and c.layout.tensor == 1
    }


def test_if_nothing_fits_the_smallest_layout_is_returned() -> None:
    assert planning.choices(LARGE, 1, GIGABYTE) == []
    least = planning.least(LARGE, 1)
    assert least is not None
    assert least.memory_bytes > GIGABYTE * (1 - planning.RESERVE)
    assert (
        planning.least(replace(LARGE, batch_size=1), 7) is None
    )  # 7 share out neither it nor heads nor layers
