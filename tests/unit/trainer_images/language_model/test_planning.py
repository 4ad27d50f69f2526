"""Memory of a plan compared with measurements, and the layouts that it finds."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from language_model import planning, theory
from language_model.activation_offload import offloaded
from language_model.choices import Attention, Offload, Schedule, Strategy
from language_model.dropout import Position
from language_model.host import Host
from language_model.layout import Layout
from language_model.memory import recompute
from language_model.memory_meter import MemoryMeter
from language_model.model import build, loss_of
from torch.distributed.pipelining import ScheduleInterleaved1F1B

MODELS = (
    Layout(layers=4, width=64, context=64, batch_size=16),
    Layout(layers=8, width=128, context=128, batch_size=8),
    Layout(layers=8, width=256, context=64, batch_size=8),
    Layout(layers=8, width=64, context=256, batch_size=4),
)
GIGABYTE = 10.0**9
LARGE = Layout(layers=24, heads=16, width=2048, context=1024, batch_size=64)


DROPOUT = {"dropout": 0.1}
SCORES_KEPT = {"attention": Attention.EXPLICIT}


def counted(layout: Layout) -> tuple[int, Host]:
    """Return the peak memory of a step in bytes, without parameters and gradients, and the step's host."""
    host = Host(torch.device("cpu"))
    model = build(layout, range(layout.layers), torch.device("cpu"))
    recompute(model, layout)
    tokens = torch.randint(0, 256, (layout.batch_size, layout.context + 1))
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    kept = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
    is_on_host = layout.offload is Offload.ACTIVATIONS
    context = offloaded(model, host) if is_on_host else nullcontext()
    with MemoryMeter(kept, host) as memory, context, model.random_state.at(Position(1, 0)):
        torch.autograd.backward(loss_of(model(tokens[:, :-1]), tokens[:, 1:]))
    return int(memory.peak - sum(tensor.nbytes for tensor in kept)), host


@pytest.mark.parametrize("checkpointing", ["none", "selective", "keep_products", "full", "every:2"])
@pytest.mark.parametrize("options", [{}, SCORES_KEPT, DROPOUT], ids=["fused", "scores kept", "dropout"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"width {model.width}, context {model.context}")
def test_activations_are_those_of_the_formula(
    model: Layout, options: dict[str, Any], checkpointing: str
) -> None:
    layout = replace(model, checkpointing=checkpointing, **options)
    assert theory.activations(layout) == pytest.approx(counted(layout)[0], rel=0.1)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("options", [{}, SCORES_KEPT, DROPOUT], ids=["fused", "scores kept", "dropout"])
@pytest.mark.parametrize("model", MODELS[:2], ids=lambda model: f"width {model.width}")
def test_offloaded_activations_are_those_of_the_formula(
    model: Layout, options: dict[str, Any], checkpointing: str
) -> None:
    layout = replace(model, checkpointing=checkpointing, offload=Offload.ACTIVATIONS, **options)
    peak, host = counted(layout)
    assert theory.activations(layout) == pytest.approx(peak, rel=0.1)
    assert theory.offloaded(layout) == pytest.approx((host.bytes_in, host.bytes_out), rel=1e-3)


def test_selective_recomputation_drops_the_scores_and_what_dropout_made_of_them() -> None:
    layout = replace(MODELS[1], dropout=0.1)
    kept = counted(layout)[0] - counted(replace(layout, checkpointing="selective"))[0]
    scores = layout.layers * layout.batch_size * layout.heads * layout.context**2
    assert kept == pytest.approx(scores * (4 + 4 + 1), rel=0.05)  # softmax, dropout, mask


def test_the_schedule_of_a_pipeline_determines_the_memory_of_micro_batches() -> None:
    short = replace(LARGE, world_size=4, pipeline=4, micro_batches=16)
    all_at_once = replace(short, schedule=Schedule.GPIPE)
    assert theory.activations(all_at_once) > 3.5 * theory.activations(short)


@pytest.mark.parametrize(
    ("ranks", "parts", "micro_batches"), [(2, 2, 2), (2, 2, 8), (4, 2, 8), (4, 3, 16), (4, 6, 4)]
)
def test_an_interleaved_pipeline_holds_the_parts_that_its_schedule_has_in_flight(
    ranks: int, parts: int, micro_batches: int
) -> None:
    layout = Layout(
        world_size=ranks,
        layers=24,
        pipeline=ranks,
        schedule=Schedule.INTERLEAVED,
        stages_per_rank=parts,
        batch_size=micro_batches,
        micro_batches=micro_batches,
    )
    schedule = SimpleNamespace(
        n_local_stages=parts,
        microbatches_per_round=ranks,
        pp_group_size=ranks,
        _n_microbatches=micro_batches,
    )
    for rank in range(ranks):
        in_flight = most = 0
        for action in ScheduleInterleaved1F1B._calculate_single_rank_operations(schedule, rank):  # type: ignore[arg-type]
            if action is not None:
                in_flight += 1 if action.computation_type.name == "FORWARD" else -1
                most = max(most, in_flight)
        assert in_flight == 0
        assert theory.micro_batches_held(layout, rank) == most / parts


def test_an_interleaved_pipeline_needs_more_memory_than_1f1b_as_published() -> None:
    plain = replace(LARGE, world_size=4, pipeline=4, micro_batches=16)
    interleaved = replace(plain, schedule=Schedule.INTERLEAVED, stages_per_rank=2)
    assert theory.micro_batches_held(interleaved, 0) == (1 + 3 / (4 * 2)) * theory.micro_batches_held(
        plain, 0
    )
    assert theory.activations(interleaved) > 1.25 * theory.activations(plain)


def test_the_schedule_of_a_pipeline_determines_its_waiting_time() -> None:
    pipeline = replace(LARGE, world_size=4, pipeline=4, micro_batches=4)
    assert theory.bubble(pipeline) == theory.bubble(replace(pipeline, schedule=Schedule.GPIPE)) == 3 / 7
    naive = replace(pipeline, schedule=Schedule.NAIVE, micro_batches=1, steps=9)
    assert theory.bubble(naive) == 1 - 1 / 4
    assert theory.bubble(replace(naive, schedule=Schedule.PIPEDREAM)) == 3 / (9 + 3)


def test_each_stage_of_pipedream_keeps_a_version_and_activations_of_each_batch_in_flight() -> None:
    naive = replace(LARGE, world_size=4, pipeline=4, schedule=Schedule.NAIVE)
    pipedream = replace(naive, schedule=Schedule.PIPEDREAM)
    assert [theory.weight_versions(pipedream, rank) for rank in range(4)] == [4, 3, 2, 1]
    assert [theory.staleness(pipedream, rank) for rank in range(4)] == [3, 2, 1, 0]
    assert [theory.weight_versions(naive, rank) for rank in range(4)] == [1, 1, 1, 1]
    assert theory.memory(pipedream).parameters > 3.9 * theory.memory(naive).parameters
    assert theory.memory(pipedream).optimizer == theory.memory(naive).optimizer
    assert theory.activations(pipedream) > 3.5 * theory.activations(naive)


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


def test_a_device_that_is_too_small_for_the_model_holds_one_layer_at_a_time() -> None:
    best = planning.choices(LARGE, 1, GIGABYTE)[0]
    assert best.layout.offload is Offload.LAYERS
    deeper = planning.price(replace(best.layout, layers=10 * LARGE.layers))
    assert deeper.memory_bytes == best.memory_bytes


def test_if_nothing_fits_the_smallest_layout_is_returned() -> None:
    small = GIGABYTE / 2
    assert planning.choices(LARGE, 1, small) == []
    least = planning.least(LARGE, 1)
    assert least is not None
    assert least.memory_bytes > small * (1 - planning.RESERVE)
    assert (
        planning.least(replace(LARGE, batch_size=1), 7) is None
    )  # 7 ranks cannot divide it, the heads, or the layers


def test_the_parameters_have_a_precision_that_is_not_the_default() -> None:
    def given(precision: str) -> set[str | None]:
        found, _ = planning.plan(2, GIGABYTE, precision=precision)
        assert found
        return {choice.parameters.get("PRECISION") for choice in found}

    assert (given("fp32"), given("bf16"), given("fp16")) == ({None}, {"bf16"}, {"fp16"})


def test_if_no_layout_is_valid_the_numbers_are_named_that_have_to_fit() -> None:
    with pytest.raises(ValueError, match="no layout of this model is valid on 7 devices") as caught:
        planning.plan(7, GIGABYTE, batch=1)
    assert "data ranks that divide --batch 1, tensor ranks that divide --heads 4" in str(caught.value)


def test_an_unknown_precision_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="--precision must be one of fp32, bf16, fp16, but is 'fp8'"):
        planning.plan(2, GIGABYTE, precision="fp8")
