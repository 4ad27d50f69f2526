"""Real groups whose ranks step by themselves, and average their weights."""

import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from language_model import theory
from language_model.layout import Layout

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.layouts import STEPS, TINY, Result, greatest_difference, train_all

SGD = {"OPTIMIZER": "sgd", "LR": "0.1"}
AVERAGING = {"STRATEGY": "averaging"}
ROUND = {**AVERAGING, "LOCAL_STEPS": "2"}
LAYOUTS = {"each step, sgd": {**AVERAGING, **SGD}, "rounds": ROUND, "rounds, sgd": {**ROUND, **SGD}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]) -> dict[str, Result]:
    alone = train_all(forks, tmp_path_factory.mktemp("alone"), 1, {"alone": {}, "alone, sgd": SGD})
    return alone | train_all(forks, tmp_path_factory.mktemp("group"), 2, LAYOUTS)


def test_averages_after_each_step_of_sgd_are_one_process_with_the_whole_batch(
    results: dict[str, Result],
) -> None:
    assert results["alone, sgd"]["losses"][STEPS] < 0.97 * results["alone, sgd"]["losses"][1]
    for of, tolerance in (("losses", 1e-5), ("weights", 1e-4)):
        assert greatest_difference(results["each step, sgd"], results["alone, sgd"], of) < tolerance


@pytest.mark.parametrize(("name", "alone"), [("rounds", "alone"), ("rounds, sgd", "alone, sgd")])
def test_rounds_of_local_steps_learn_nearly_as_much(
    results: dict[str, Result], name: str, alone: str
) -> None:
    difference = greatest_difference(results[name], results[alone], "losses")
    assert 1e-5 < difference < 0.1 * results[alone]["losses"][STEPS]


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_bytes_of_an_average_match_the_formula(results: dict[str, Result], name: str) -> None:
    with mock.patch.dict(os.environ, {**TINY, **LAYOUTS[name], "WORLD_SIZE": "2"}):
        layout = Layout.from_environment()
    cost = results[name]["cost"]
    assert cost["sent_bytes"] == pytest.approx(theory.bytes_sent(layout) * layout.local_steps, rel=0.001)
    assert cost["optimizer_bytes"] == pytest.approx(theory.memory(layout).optimizer, rel=0.001)


def test_a_training_that_resumes_between_rounds_is_that_without_a_stop(
    results: dict[str, Result], tmp_path: Path, forks: Sequence[ForkServer]
) -> None:
    parts = train_all(
        forks,
        tmp_path,
        2,
        {"first": ROUND, "second": ROUND},
        SWITCH="1",
        CHECKPOINT_URI=str(tmp_path / "checkpoints"),
        CHECKPOINT_EVERY_STEPS=str(STEPS // 2),
    )
    whole = results["rounds"]
    assert {**parts["first"]["losses"], **parts["second"]["losses"]} == whole["losses"]
    assert greatest_difference(parts["second"], whole, "weights") == 0
