"""Batch normalization over a group equals one process with all examples, also in its running statistics."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from trainer_kit import batch_norm

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher
from tests.support.trainers.programs import batch_norm as program

SIZES = [1, 2, 4]


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]
) -> dict[int, list[dict[str, Any]]]:
    with Launcher(tmp_path_factory.mktemp("batch-norm"), forks=forks) as launcher:
        return dict(zip(SIZES, outcome_of(launcher, program.__name__, *SIZES), strict=True))


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_group_learns_what_one_process_learns(outcomes: dict[int, list[dict[str, Any]]], size: int) -> None:
    [alone] = outcomes[1]
    assert alone["grouped"] == alone["local"]
    for rank in outcomes[size]:
        for name, values in alone["local"].items():
            assert rank["grouped"][name] == pytest.approx(values, rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize("size", SIZES[1:])
def test_local_statistics_learn_something_else_and_are_warned_of(
    outcomes: dict[int, list[dict[str, Any]]], size: int
) -> None:
    [alone] = outcomes[1]
    for rank in outcomes[size]:
        assert rank["local"]["1.running_var"] != pytest.approx(alone["local"]["1.running_var"], rel=1e-3)
        [warning] = rank["warnings"]
        assert warning.startswith("1 and 1 more: the statistics are those of each rank's own examples")
    assert alone["warnings"] == []


def test_a_replaced_layer_keeps_its_weights_and_statistics() -> None:
    local = nn.BatchNorm1d(4, eps=0.1, momentum=None)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(local))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    same: Any = batch_norm.over_group(model)
    layer = same[1][0]
    assert isinstance(layer, batch_norm.GroupBatchNorm)
    assert (layer.weight is local.weight, layer.eps, layer.momentum) == (True, 0.1, None)
    assert all(torch.equal(value, state[name]) for name, value in same.state_dict().items())


def test_a_layer_with_two_names_stays_one() -> None:
    shared = nn.BatchNorm1d(3)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Sequential(shared))
    same: Any = batch_norm.over_group(model)
    assert isinstance(same[0], batch_norm.GroupBatchNorm)
    assert same[0] is same[2] is same[3][0]


def test_examples_without_channels_are_refused_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="got 1 dimension"):
        batch_norm.GroupBatchNorm(3)(torch.ones(3))
