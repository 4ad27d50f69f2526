from typing import Any

import pytest
from language_model.all_reduce.topology import Topology
from language_model.choices import Offload, Precision, Strategy
from language_model.layout import Layout
from trainer_kit.averaging import Compression
from trainer_kit.errors import ParameterError


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"checkpointing": "some"}, "CHECKPOINTING must be .* but is 'some'"),
        ({"checkpointing": "every:5"}, "every:N with N from 1 to LAYERS 4, but is 'every:5'"),
        ({"checkpointing": "keep_products", "offload": Offload.ACTIVATIONS},
         "OFFLOAD=activations needs CHECKPOINTING=.* but it is keep_products"),
        ({"world_size": 2, "offload": Offload.LAYERS, "strategy": Strategy.ZERO1},
         "OFFLOAD=layers needs STRATEGY=ddp, but it is zero1"),
        ({"world_size": 2, "offload": Offload.LAYERS, "strategy": Strategy.ZERO3},
         "OFFLOAD=layers needs STRATEGY=ddp, but it is zero3"),
        ({"world_size": 3, "offload": Offload.LAYERS, "strategy": Strategy.PARAMETER_SERVER},
         "OFFLOAD=layers needs STRATEGY=ddp, but it is parameter_server"),
        ({"world_size": 2, "offload": Offload.LAYERS, "pipeline": 2, "micro_batches": 2},
         "OFFLOAD=layers needs PIPELINE=1, but it is 2"),
        ({"world_size": 2, "offload": Offload.LAYERS, "tensor": 2},
         "OFFLOAD=layers needs TENSOR=1, but it is 2"),
        ({"offload": Offload.LAYERS, "checkpointing": "full"},
         "OFFLOAD=layers needs CHECKPOINTING=none, but it is full: each layer is recomputed"),
        ({"world_size": 2, "offload": Offload.LAYERS, "gradient_compression": Compression.FP16},
         "OFFLOAD=layers needs GRADIENT_COMPRESSION=none, but it is fp16"),
        ({"world_size": 2, "offload": Offload.LAYERS, "all_reduce": Topology.RING},
         "OFFLOAD=layers needs ALL_REDUCE=library, but it is ring"),
        ({"offload": Offload.LAYERS, "precision": Precision.FP16},
         "OFFLOAD=layers needs PRECISION=fp32 or bf16, but it is fp16"),
        ({"world_size": 2, "offload": Offload.PARAMETERS}, "OFFLOAD=parameters .* STRATEGY is ddp"),
        ({"strategy": Strategy.ZERO3, "offload": Offload.PARAMETERS}, "several data ranks, but there is 1"),
        ({"world_size": 2, "strategy": Strategy.ZERO3, "offload": Offload.OPTIMIZER}, "STRATEGY is zero3"),
        (
            {"world_size": 2, "tensor": 2, "strategy": Strategy.ZERO1, "offload": Offload.OPTIMIZER},
            "STRATEGY is zero1, TENSOR 2 and the number of data ranks 1",
        ),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_save_memory_in_this_way_is_refused(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        Layout(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {"offload": Offload.LAYERS},
        {"world_size": 4, "offload": Offload.LAYERS, "micro_batches": 2, "precision": Precision.BF16},
        {"world_size": 4, "offload": Offload.ACTIVATIONS, "pipeline": 2, "tensor": 2, "micro_batches": 4},
        {
            "world_size": 2,
            "offload": Offload.ACTIVATIONS,
            "strategy": Strategy.ZERO3,
            "checkpointing": "full",
        },
        {"world_size": 2, "offload": Offload.OPTIMIZER, "strategy": Strategy.ZERO2, "dropout": 0.5},
    ],
)
def test_other_layouts_are_allowed(parameters: dict[str, Any]) -> None:
    assert Layout(**parameters).offload is parameters["offload"]


@pytest.mark.parametrize(
    ("checkpointing", "every"),
    [("none", 0), ("selective", 0), ("keep_products", 0), ("full", 1), ("every:3", 3)],
)
def test_each_so_many_th_layer_is_computed_anew(checkpointing: str, every: int) -> None:
    assert Layout(checkpointing=checkpointing).recomputed_every == every
