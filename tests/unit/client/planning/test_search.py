"""The planner decides known cases as their authors did, and refuses impossible values."""

import time
from dataclasses import replace
from typing import Any

import pytest

from training_service.client.planning import costs
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.model import Model
from training_service.client.planning.search import (
    Decision,
    Limits,
    Nothing,
    choices,
    decide,
    numbers_of_devices,
)

GPT3 = Model(layers=96, width=12288, heads=96, sequence=2048)
LLAMA = Model(
    layers=126,
    width=16384,
    heads=128,
    sequence=8192,
    vocabulary=128_256,
    key_value_heads=8,
    inner=53_248,
    gated=True,
    tied=False,
)
SMALL = Training(Model(layers=12, width=768, heads=12, sequence=1024), batch=16)
SELENE = Cluster(memory=80e9, speed=312e12, per_machine=8, inner_bandwidth=300e9, outer_bandwidth=200e9)
"""A machine of Narayanan et al., 2021: 8 A100, NVLink of 600 GB/s in both directions, 8 x 200 Gbit/s."""
GRAND_TETON = Cluster(memory=80e9, speed=989e12, per_machine=8, inner_bandwidth=450e9, outer_bandwidth=400e9)
"""A machine of Dubey et al., 2024: 8 H100, NVLink of 900 GB/s in both directions, 8 x 400 Gbit/s."""


def decided(*arguments: Any, **options: Any) -> Decision:
    decision = decide(*arguments, **options)
    assert isinstance(decision, Decision)
    return decision


def shapes(decision: Decision) -> list[tuple[int, int, int]]:
    """Tensor, pipeline and data ranks of the best three."""
    return [(c.layout.tensor, c.layout.pipeline, c.layout.data) for c in decision.at_best[:3]]


@pytest.mark.parametrize(
    ("billions", "heads", "width", "layers", "tensor", "pipeline", "devices", "batch"),
    [
        (1.7, 24, 2304, 24, 1, 1, 32, 512),
        (3.6, 32, 3072, 30, 2, 1, 64, 512),
        (7.5, 32, 4096, 36, 4, 1, 128, 512),
        (145.6, 96, 12288, 80, 8, 8, 1536, 2304),
        (529.6, 128, 20480, 105, 8, 35, 2520, 2520),
        (1008.0, 160, 25600, 128, 8, 64, 3072, 3072),
    ],
)
def test_layouts_of_megatron_are_among_the_best_three(
    billions: float, heads: int, width: int, layers: int, tensor: int, pipeline: int, devices: int, batch: int
) -> None:
    """Table 1 of Narayanan et al., 2021, whose system had neither ZeRO nor sequence parallelism."""
    model = Model(
        layers, width, heads, sequence=2048, vocabulary=51_200, positions=2048, causal=False
    )  # its attention computes all scores
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.03)
    theirs = Limits(("ddp",), ("full",), ("none",), sequence_parallel=False)
    cluster = replace(SELENE, machines=devices // 8)
    decision = decided(Training(model, batch, "fp16"), cluster, limits=theirs, all_devices=True)
    assert (tensor, pipeline, devices // tensor // pipeline) in shapes(decision)


@pytest.mark.parametrize(("devices", "data"), [(8192, 64), (16_384, 128)])
def test_layouts_of_llama_3_are_among_the_best_three(devices: int, data: int) -> None:
    """Table 4 of Dubey et al., 2024. Their data ranks divide the optimizer's state and gradients."""
    theirs = Limits(("zero1", "zero2"), offloads=("none",))
    cluster = replace(GRAND_TETON, machines=devices // 8)
    decision = decided(Training(LLAMA, batch=2048), cluster, limits=theirs, all_devices=True)
    assert LLAMA.parameters == pytest.approx(405e9, rel=0.01)
    assert (8, 16, data) in shapes(decision)


def test_a_training_of_24_gb_needs_three_devices_of_10_gb() -> None:
    model = Model(layers=28, width=2048, heads=16, sequence=512, vocabulary=32_000)
    training = Training(model, batch=48, precision="fp32")
    assert training.states_bytes == pytest.approx(24e9, rel=0.05)
    decision = decided(training, Cluster(memory=10e9, speed=15e12, per_machine=4))
    assert min(decision.by_devices) == 3
    for layout in (Layout(micro_batches=48), Layout(data=2, micro_batches=24, recomputation="full")):
        assert costs.memory(training, layout) > 10e9


@pytest.mark.parametrize(("memory", "least_weights", "least_states"), [(80e9, 5, 44), (192e9, 2, 19)])
def test_gpt_3_needs_as_many_devices_as_its_bytes_say(
    memory: float, least_weights: int, least_states: int
) -> None:
    training = Training(GPT3, batch=1536)
    weights = training.model.parameters * training.states[0]
    assert weights == pytest.approx(350e9, rel=0.01)
    assert -(-weights // memory) == least_weights
    assert -(-training.states_bytes // (memory * 0.9)) == least_states
    one_machine = replace(SELENE, memory=memory)
    assert isinstance(decide(training, one_machine, limits=Limits(offloads=("none",))), Nothing)
    decision = decided(training, replace(one_machine, machines=16))
    assert min(decision.by_devices) >= least_states


def test_a_training_that_fits_one_device_stays_there_if_the_network_is_slow() -> None:
    slow = Cluster(memory=80e9, speed=312e12, machines=8, outer_bandwidth=125e6)
    assert decided(SMALL, slow).best.layout.devices == 1


def test_a_training_that_fits_one_device_uses_all_with_data_parallelism_if_the_network_is_fast() -> None:
    fast = Cluster(memory=80e9, speed=15e12, per_machine=8)
    best = decided(SMALL, fast).best.layout
    assert (best.data, best.tensor, best.pipeline, best.strategy) == (8, 1, 1, "ddp")


def test_a_slow_network_makes_a_pipeline_of_a_model_that_does_not_fit() -> None:
    model = Model(layers=24, width=2048, heads=16, sequence=1024)
    training = Training(model, batch=32, precision="fp32")
    best = decided(training, Cluster(memory=16e9, speed=15e12, machines=2, outer_bandwidth=1.25e9)).best
    assert (best.layout.pipeline, best.layout.tensor) == (2, 1)


def test_the_chosen_layouts_fit_and_use_the_number_of_devices() -> None:
    cluster = replace(SELENE, machines=4, memory=16e9)
    decision = decided(Training(Model(24, 2048, 16, 1024), batch=64), cluster)
    for devices, choice in decision.by_devices.items():
        assert choice.layout.devices == devices
        assert choice.memory <= 16e9 * (1 - costs.RESERVE)
    assert [c.step for c in decision.at_best] == sorted(c.step for c in decision.at_best)


def test_more_memory_never_makes_the_best_step_slower() -> None:
    training = Training(Model(24, 2048, 16, 1024), batch=64)
    steps = [
        decided(training, replace(SELENE, memory=size * 1e9), all_devices=True).best.step
        for size in (8, 16, 40, 80, 200)
    ]
    assert steps == sorted(steps, reverse=True)


def test_a_higher_least_gain_never_uses_more_devices() -> None:
    cluster = Cluster(memory=80e9, speed=15e12, machines=16, outer_bandwidth=3e9)
    used = [decided(SMALL, cluster, least_gain=gain / 10).best.layout.devices for gain in range(11)]
    assert used == sorted(used, reverse=True)
    assert used[0] > used[-1]


def test_offload_is_the_last_choice() -> None:
    training = Training(Model(24, 2048, 16, 1024), batch=8, precision="fp32")
    assert decided(training, Cluster(memory=16e9, speed=15e12)).best.layout.offload == "optimizer"
    assert decided(training, Cluster(memory=40e9, speed=15e12)).best.layout.offload == "none"


def test_16384_devices_are_planned_in_less_than_two_seconds() -> None:
    cluster = replace(GRAND_TETON, machines=2048)
    begin = time.process_time()
    decided(Training(LLAMA, batch=2048), cluster)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("layers", [1, 2, 4, 5, 7, 12, 14])
def test_only_the_first_and_the_last_stage_may_have_no_layer(layers: int) -> None:
    """These two have the embedding and the head, as in the layouts of Llama 3: 128 stages, 126 layers."""
    training = Training(Model(layers, 768, 12, 1024), batch=64)
    cluster = Cluster(memory=80e9, speed=15e12, machines=16)
    limits = Limits(recomputations=("none",), offloads=("none",))
    for devices in (1, 2, 4, 8, 16):
        for choice in choices(training, cluster, devices, limits):
            assert choice.layout.pipeline * choice.layout.stages <= layers + 2


def test_the_published_stages_of_llama_3_are_planned() -> None:
    limits = Limits(("zero1", "zero2"), offloads=("none",))
    decision = decided(
        Training(LLAMA, batch=2048), replace(GRAND_TETON, machines=2048), limits=limits, all_devices=True
    )
    best = decision.best.layout
    assert (best.tensor, best.pipeline, best.stages, best.data) == (8, 16, 8, 128)


def test_all_numbers_of_few_devices_are_tried_and_whole_machines_of_many() -> None:
    assert numbers_of_devices(Cluster(1e9, 1e12, machines=3, per_machine=4)) == [1, 2, 3, 4, 8, 12]
    assert numbers_of_devices(Cluster(1e9, 1e12, machines=2048, per_machine=8))[-3:] == [4096, 8192, 16384]


def test_a_batch_that_no_rank_can_divide_has_no_valid_layout() -> None:
    training = Training(Model(layers=1, width=30, heads=1, sequence=64), batch=1)
    nothing = decide(training, Cluster(memory=80e9, speed=1e12, machines=7), all_devices=True)
    assert isinstance(nothing, Nothing)
    assert nothing.smallest is None


def test_if_nothing_fits_the_smallest_layout_is_returned() -> None:
    nothing = decide(Training(GPT3, batch=8), Cluster(memory=1e9, speed=1e12, per_machine=4))
    assert isinstance(nothing, Nothing)
    assert nothing.smallest is not None
    assert nothing.smallest.layout.devices == 4
    assert nothing.smallest.memory > 1e9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("memory", value) for value in (0, -1, 1e30, float("nan"), float("inf"))),
        *(("outer_bandwidth", value) for value in (-1e9, 0, 1e30)),
        *(("speed", value) for value in (0, 1e30)),
        ("outer_latency", -1),
        ("machines", 0),
        ("per_machine", 10**30),
    ],
)
def test_devices_that_cannot_exist_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} is .*; it must be from"):
        replace(SELENE, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [("layers", 0), ("width", 10**30), ("sequence", -5), ("vocabulary", 0), ("inner", -1)],
)
def test_models_that_cannot_exist_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{field} is .*; it must be from"):
        replace(GPT3, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [0, -1, 10**30])
def test_an_impossible_batch_is_refused(batch: int) -> None:
    with pytest.raises(ValueError, match="batch is"):
        Training(GPT3, batch)


@pytest.mark.parametrize("gain", [-0.1, 1.1, float("nan")])
def test_an_impossible_gain_is_refused(gain: float) -> None:
    with pytest.raises(ValueError, match=r"least_gain is .* from 0 to 1"):
        decide(SMALL, SELENE, least_gain=gain)
