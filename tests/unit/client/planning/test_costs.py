"""The time of a layout, part by part."""

from dataclasses import replace

import pytest

from training_service.client.planning import costs
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.model import Model
from training_service.client.planning.search import Decision, Limits, decide

MODEL = Model(layers=8, width=256, heads=4, sequence=64, vocabulary=256)
TRAINING = Training(MODEL, batch=32, precision="fp32")
FAST = Cluster(memory=64e9, speed=1e11, machines=8, outer_bandwidth=1e12, outer_latency=0.0)
SLOW = replace(FAST, outer_bandwidth=1e6)


def step(cluster: Cluster, layout: Layout) -> float:
    return costs.time(TRAINING, cluster, layout).step


def test_the_overhead_of_layers_is_paid_for_each_micro_batch() -> None:
    cluster = replace(FAST, layer_overhead=0.001)
    for parts in (1, 4, 32):
        layout = Layout(micro_batches=parts)
        assert step(cluster, layout) == pytest.approx(step(FAST, layout) + parts * 8 * 0.001)


def test_a_pipeline_pays_the_overhead_while_it_fills_and_empties_too() -> None:
    cluster = replace(FAST, layer_overhead=0.001)
    layout = Layout(pipeline=4, micro_batches=8)
    assert step(cluster, layout) == pytest.approx(step(FAST, layout) + (8 + 3) * 2 * 0.001)


def test_with_a_high_overhead_a_pipeline_has_fewer_micro_batches() -> None:
    limits = Limits(strategies=("ddp",), recomputations=("none",), offloads=("none",))
    found = []
    for overhead in (0.0, 0.01):
        cluster = replace(FAST, machines=2, layer_overhead=overhead, outer_bandwidth=1e9)
        decision = decide(TRAINING, cluster, limits=limits, all_devices=True)
        assert isinstance(decision, Decision)
        found += [choice.layout.micro_batches for choice in decision.at_best if choice.layout.pipeline == 2]
    assert found[1] < found[0]


def test_transfers_of_one_stage_a_rank_are_hidden_behind_passes_except_at_both_ends() -> None:
    cluster = replace(FAST, outer_bandwidth=1e9)
    layout = Layout(pipeline=4, micro_batches=8)
    sent = 32 / 8 * 64 * 256 * 4
    expected = 2 * 3 * sent / (1e9 * cluster.link_efficiency)
    assert costs.time(TRAINING, cluster, layout).pipeline == pytest.approx(expected)


def test_a_link_that_is_slower_than_the_passes_sets_the_pace_of_a_pipeline() -> None:
    sent = 32 * 64 * 256 * 4 / (1e6 * SLOW.link_efficiency)
    two = step(SLOW, Layout(pipeline=2, micro_batches=8))
    four = step(SLOW, Layout(pipeline=4, micro_batches=8))
    assert two == pytest.approx(sent * (1 + 2 / 8), rel=0.05)
    assert four == pytest.approx(2 * sent + 6 / 8 * sent, rel=0.05), (
        "ranks in the middle send in both directions"
    )


def test_every_transfer_of_several_stages_a_rank_is_waited_for() -> None:
    layout = Layout(pipeline=2, micro_batches=8, stages=2)
    expected = 2 * 2 * 32 * 64 * 256 * 4 / (1e6 * SLOW.link_efficiency)
    assert costs.time(TRAINING, SLOW, layout).pipeline == pytest.approx(expected)


@pytest.mark.parametrize("value", [-0.1, 11, float("nan")])
def test_an_impossible_overhead_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"layer_overhead is .* seconds"):
        replace(FAST, layer_overhead=value)
