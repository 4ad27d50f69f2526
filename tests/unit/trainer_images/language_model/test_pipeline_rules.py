"""The layers of the stages of pipelines, and the layouts of pipelines that are refused."""

from typing import Any

import pytest
from language_model.choices import Offload, Precision, Schedule, Split, Strategy
from language_model.layout import Layout
from language_model.pipeline_rules import split
from trainer_kit.errors import ParameterError

PIPEDREAM: dict[str, Any] = {"world_size": 2, "pipeline": 2, "schedule": Schedule.PIPEDREAM}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"world_size": 3, "pipeline": 3, "micro_batches": 4}, "LAYERS 4 cannot .* evenly among 3 stages"),
        ({"world_size": 8, "pipeline": 8, "micro_batches": 8}, "LAYERS 4 is too low for 8 stages"),
        (
            {"world_size": 2, "pipeline": 2, "micro_batches": 4, "schedule": Schedule.INTERLEAVED,
             "stages_per_rank": 3},
            r"LAYERS 4 is too low for 6 stages \(PIPELINE 2 x STAGES_PER_RANK 3\)",
        ),
        (
            {"world_size": 2, "pipeline": 2, "micro_batches": 3, "batch_size": 12,
             "schedule": Schedule.INTERLEAVED},
            "MICRO_BATCHES 3 is not a multiple of PIPELINE 2",
        ),
        ({"world_size": 4, "pipeline": 4, "micro_batches": 2}, "MICRO_BATCHES 2 is less than PIPELINE 4"),
        (
            {"world_size": 4, "pipeline": 2, "tensor": 2, "micro_batches": 2, "loss_parallel": True},
            "LOSS_PARALLEL cannot be combined with PIPELINE 2",
        ),
        (
            {"world_size": 2, "pipeline": 2, "micro_batches": 2, "schedule": Schedule.NAIVE},
            "SCHEDULE=naive .* MICRO_BATCHES must be 1, but is 2",
        ),
        ({**PIPEDREAM, "micro_batches": 4}, "SCHEDULE=pipedream .* MICRO_BATCHES must be 1, but is 4"),
        ({**PIPEDREAM, "strategy": Strategy.ZERO1}, "SCHEDULE=pipedream .* STRATEGY=ddp, but .* is zero1"),
        ({**PIPEDREAM, "world_size": 4, "tensor": 2}, "SCHEDULE=pipedream .* TENSOR 1, but TENSOR is 2"),
        ({**PIPEDREAM, "precision": Precision.FP16}, "SCHEDULE=pipedream .* PRECISION=fp16: .* use fp32"),
    ],
)  # fmt: skip
def test_an_invalid_pipeline_is_refused_with_its_numbers(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Layout(**parameters)


def test_only_a_pipeline_can_be_asynchronous() -> None:
    assert Layout(**PIPEDREAM, offload=Offload.OPTIMIZER).is_asynchronous
    assert not Layout(schedule=Schedule.PIPEDREAM).is_asynchronous
    assert not Layout(world_size=2, pipeline=2, schedule=Schedule.NAIVE).is_asynchronous


def test_an_interleaved_pipeline_has_several_stages_per_rank() -> None:
    layout = Layout(world_size=2, pipeline=2, micro_batches=4, schedule=Schedule.INTERLEAVED)
    assert [list(layers) for layers in layout.layers_of_stages] == [[0], [1], [2], [3]]


def test_a_split_by_cost_gives_fewer_layers_to_the_stage_with_the_head() -> None:
    layout = Layout(
        world_size=3, pipeline=3, micro_batches=3, batch_size=3, layers=8, width=32, split=Split.COST
    )
    assert [len(layers) for layers in layout.layers_of_stages] == [3, 3, 2]


@pytest.mark.parametrize("layers", range(1, 20))
@pytest.mark.parametrize("stages", range(1, 6))
def test_every_layer_has_one_stage_and_every_stage_a_layer(layers: int, stages: int) -> None:
    if stages <= layers:
        ranges = split(layers, stages, head_cost=1.5)
        assert [layer for each in ranges for layer in each] == list(range(layers))
        assert all(ranges)
        assert len(ranges) == stages
