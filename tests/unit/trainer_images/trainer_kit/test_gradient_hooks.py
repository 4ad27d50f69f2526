import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.launcher import Launcher, end_of
from tests.support.trainers.programs import averaging

PROGRAM = str(Path(averaging.__file__))
HALF_PRECISION = {"fp16": 1e-3, "bf16": 1e-2}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]) -> list[dict[str, Any]]:
    """The results of each of two ranks."""
    folder = tmp_path_factory.mktemp("averaging")
    with Launcher(folder, forks=forks) as launcher:
        ranks = launcher.start_group(2, PROGRAM, RESULTS=str(folder), CHECKPOINT_EVERY_STEPS="1")
        ends = [end_of(rank) for rank in ranks]
    assert [end.code for end in ends] == [0, 0], [end.stderr for end in ends]
    return [json.loads(end.stdout.splitlines()[-1]) for end in ends]


@pytest.mark.parametrize("compression", ["none", "fp16", "bf16", "powersgd"])
def test_all_ranks_keep_the_same_weights(results: list[dict[str, Any]], compression: str) -> None:
    assert len({each[compression]["digest"] for each in results}) == 1


def test_no_compression_is_bit_equal_to_the_library(results: list[dict[str, Any]]) -> None:
    assert results[0]["none"]["digest"] == results[0]["library"]["digest"]


@pytest.mark.parametrize(("compression", "tolerance"), HALF_PRECISION.items())
def test_half_the_bytes_learn_nearly_the_same(
    results: list[dict[str, Any]], compression: str, tolerance: float
) -> None:
    exact, compressed = (results[0][name] for name in ("library", compression))
    assert compressed["weights"] == pytest.approx(exact["weights"], abs=tolerance)
    assert compressed["digest"] != exact["digest"]
    assert compressed["sent"] == results[0]["none"]["sent"] / 2


@pytest.mark.parametrize("compression", ["none", "fp16", "bf16", "powersgd"])
def test_the_counted_bytes_are_those_of_the_formula(results: list[dict[str, Any]], compression: str) -> None:
    assert results[0][compression]["sent"] == results[0][compression]["formula"] > 0


def test_powersgd_sends_a_small_part(results: list[dict[str, Any]]) -> None:
    assert results[0]["powersgd"]["sent"] < results[0]["none"]["sent"] / 8


def test_the_hook_of_pytorch_for_bf16_fails_without_nccl(results: list[dict[str, Any]]) -> None:
    assert results[0]["bf16 of PyTorch"].startswith("TypeError: BF16 all reduce communication hook required")


@pytest.mark.parametrize("stopped", ["resumed", "early"])
def test_a_resumed_powersgd_goes_on_as_if_it_had_not_stopped(
    results: list[dict[str, Any]], stopped: str
) -> None:
    """This holds even if it stops before the first compressed step."""
    for each in results:
        assert each[stopped][-1] == each["once"][-1]
