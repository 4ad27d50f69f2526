from typing import Any

import pytest
from language_model.all_reduce.topology import Topology
from language_model.choices import Precision, RateScaling, Stepping, Strategy
from language_model.layout import Layout
from language_model.parameter_server.synchrony import Synchrony
from trainer_kit.averaging import Compression
from trainer_kit.errors import ParameterError

SERVED = {"world_size": 3, "strategy": Strategy.PARAMETER_SERVER}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"world_size": 6, "pipeline": 2, "tensor": 2}, r"PIPELINE 2 x TENSOR 2 = 4 .* WORLD_SIZE 6"),
        ({"width": 30, "heads": 4}, "WIDTH 30 is not a multiple of HEADS 4"),
        ({"world_size": 3, "tensor": 3, "heads": 4}, "HEADS 4 is not a multiple of TENSOR 3"),
        ({"world_size": 2, "tensor": 2, "context": 33}, "CONTEXT 33 is not a multiple of TENSOR 2"),
        ({"world_size": 3, "tensor": 3, "heads": 6, "width": 60, "context": 60}, "vocabulary of 256"),
        ({"sequence_parallel": True}, "SEQUENCE_PARALLEL .* TENSOR is 1"),
        ({"world_size": 2, "loss_parallel": True}, "LOSS_PARALLEL .* TENSOR is 1"),
        (
            {"world_size": 2, "batch_size": 10, "micro_batches": 4},
            "BATCH_SIZE 10 .* 2 data ranks x MICRO_BATCHES 4 = 8 parts",
        ),
        (
            {"world_size": 4, "all_reduce": Topology.RING, "strategy": Strategy.ZERO3},
            "ALL_REDUCE=ring .* they are zero3",
        ),
        (
            {"world_size": 4, "all_reduce": Topology.TORUS, "gradient_compression": Compression.FP16},
            "ALL_REDUCE=torus .* no GRADIENT_COMPRESSION, .* fp16",
        ),
        ({"all_reduce": Topology.RING, "world_size": 2, "tensor": 2}, "several data ranks"),
        ({"strategy": Strategy.PARAMETER_SERVER}, "WORLD_SIZE 1 leaves a parameter server no worker"),
        (
            {"world_size": 2, "pipeline": 2, "micro_batches": 2, "strategy": Strategy.AVERAGING},
            "STRATEGY=averaging needs whole models, PIPELINE 1 and TENSOR 1, but they are 2 and 1",
        ),
        ({"local_steps": 4}, "LOCAL_STEPS=4 needs STRATEGY=averaging or gossip, but STRATEGY is ddp"),
        ({"slow_momentum": 0.5}, "SLOW_MOMENTUM=0.5 needs STRATEGY=averaging, but STRATEGY is ddp"),
        (
            {"strategy": Strategy.AVERAGING, "local_steps": 3},
            "STEPS 200 is not a multiple of LOCAL_STEPS 3: the last average would be missing",
        ),
        (
            {"strategy": Strategy.ZERO1, "optimizer": Stepping.SGD},
            "OPTIMIZER=sgd needs STRATEGY=ddp, averaging, gossip or parameter_server, but STRATEGY is zero1",
        ),
        (
            {"world_size": 4, "strategy": Strategy.PARAMETER_SERVER},
            "BATCH_SIZE 16 .* 3 gradients of an update x MICRO_BATCHES 1 = 3 parts",
        ),
        (
            {"world_size": 4, "batch_size": 18, "strategy": Strategy.PARAMETER_SERVER, "tensor": 2},
            "needs whole models, PIPELINE 1 and TENSOR 1, but they are 1 and 2",
        ),
        ({"synchrony": Synchrony.SOFTSYNC}, "SYNCHRONY=softsync .* STRATEGY is ddp"),
        ({"softsync": 2}, "SOFTSYNC=2 needs SYNCHRONY=softsync, but SYNCHRONY is synchronous"),
        ({"speculate_after": 60}, "SPECULATE_AFTER=60 needs SYNCHRONY=speculative, but SYNCHRONY is sync"),
        (
            {**SERVED, "synchrony": Synchrony.SPECULATIVE, "compensation": 0.5},
            "COMPENSATION=0.5 needs SYNCHRONY=delay_compensated, but SYNCHRONY is speculative",
        ),
        (
            {**SERVED, "backup_workers": 1},
            "BACKUP_WORKERS=1 needs SYNCHRONY=backup_workers, but SYNCHRONY is synchronous",
        ),
        ({"servers": 2}, "SERVERS=2 needs STRATEGY=parameter_server, but STRATEGY is ddp"),
        ({"standby": True}, "STANDBY=true needs STRATEGY=parameter_server, but STRATEGY is ddp"),
        (
            {"world_size": 3, "strategy": Strategy.PARAMETER_SERVER, "servers": 3},
            "WORLD_SIZE 3 leaves .* no worker: the 3 servers .* SERVERS 3 needs at least 4 ranks",
        ),
        (
            {"world_size": 4, "strategy": Strategy.PARAMETER_SERVER, "servers": 2, "standby": True},
            r"WORLD_SIZE 4 leaves .* as many standbys \(STANDBY=true\) .* needs at least 5 ranks",
        ),
        (
            {"world_size": 6, "batch_size": 16, "strategy": Strategy.PARAMETER_SERVER, "servers": 3},
            "BATCH_SIZE 16 cannot be divided evenly among 3 gradients of an update",
        ),
        ({"lr_scaling": RateScaling.LINEAR}, "set both or none of .* but they are linear and not set"),
        ({"reference_batch_size": 8}, "they are none and 8"),
        ({"grow_at": (20, 10)}, r"GROW_AT must be increasing step numbers, but is \(20, 10\)"),
        ({"largest_batch_size": 8}, "LARGEST_BATCH_SIZE 8 is below BATCH_SIZE 16"),
        ({"world_size": 2, "tensor": 2, "strategy": Strategy.ZERO_REDUNDANCY_OPTIMIZER},
         "STRATEGY=zero_redundancy_optimizer .* TENSOR 2"),
        (
            {"world_size": 2, "strategy": Strategy.ZERO1, "gradient_compression": Compression.FP16},
            "GRADIENT_COMPRESSION=fp16 .* zero1, 1, 1 and 2",
        ),
        (
            {"world_size": 2, "strategy": Strategy.ZERO3, "gradient_compression": Compression.FP16},
            "GRADIENT_COMPRESSION=fp16 .* zero3, 1, 1 and 2",
        ),
        ({"strategy": Strategy.ZERO2, "precision": Precision.FP16}, "PRECISION=fp16 .*=ddp, but .* zero2"),
        (
            {"world_size": 2, "precision": Precision.FP16, "gradient_compression": Compression.POWERSGD},
            "PRECISION=fp16 cannot be combined with GRADIENT_COMPRESSION=powersgd",
        ),
    ],
)  # fmt: skip
def test_an_invalid_layout_is_refused_with_its_numbers(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Layout(**parameters)


def test_the_remaining_ranks_are_data_ranks() -> None:
    layout = Layout(world_size=8, pipeline=2, tensor=2, micro_batches=4)
    assert (layout.data, layout.stages) == (2, 2)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "STRATEGY",
            "zero4",
            "STRATEGY must be one of ddp, zero1, zero2, zero_redundancy_optimizer, shard_grad_op, zero3, "
            "averaging, gossip, parameter_server, but is 'zero4'",
        ),
        ("LOSS_PARALLEL", "yes", "LOSS_PARALLEL must be true, false, 1 or 0, but is 'yes'"),
        ("WORLD_SIZE", "0", "WORLD_SIZE must be a whole number"),
        ("DROPOUT", "1", "DROPOUT must be a number from 0 to below 1, but is '1'"),
        ("OFFLOAD", "disk", "none, parameters, optimizer, activations, layers, but is 'disk'"),
    ],
)
def test_an_invalid_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ParameterError, match=message):
        Layout.from_environment()


@pytest.mark.parametrize("parameters", [{"checkpointing": "selective"}, {"dropout": 0.1}])
def test_selective_recomputation_and_dropout_need_the_operations_of_attention_apart(
    parameters: dict[str, Any],
) -> None:
    assert Layout(**parameters).is_attention_explicit
    assert not Layout().is_attention_explicit


def test_steps_at_which_the_batch_grows_are_read_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROW_AT", "100,200")
    assert Layout.from_environment().grow_at == (100, 200)


@pytest.mark.parametrize("given", ["100;200", "1,2", "ten"])
def test_an_invalid_list_of_steps_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROW_AT", given)
    with pytest.raises(ParameterError, match=r"GROW_AT must be whole numbers from 2 .* separated by commas"):
        Layout.from_environment()


@pytest.mark.parametrize(
    "parameters", [{"gradient_compression": Compression.BF16}, {"all_reduce": Topology.RING}]
)
def test_one_rank_may_have_the_parameters_of_averaging(parameters: dict[str, Any]) -> None:
    assert Layout(**parameters).world_size == 1
