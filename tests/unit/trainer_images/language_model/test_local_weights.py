"""Real groups whose ranks step by themselves, and average their weights."""

import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch
from language_model import data, theory
from language_model.layout import Layout
from language_model.model import build, loss_of
from torch import Tensor

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.layouts import STEPS, TINY, Result, greatest_difference, train_all
from tests.support.trainers.programs import strategies

SGD = {"OPTIMIZER": "sgd", "LR": "0.1"}
AVERAGING = {"STRATEGY": "averaging"}
ROUND = {**AVERAGING, "LOCAL_STEPS": "2"}
SLOW = {"SLOW_MOMENTUM": "0.5"}
LAYOUTS = {
    "each step, sgd": {**AVERAGING, **SGD},
    "each step, sgd, slow": {**AVERAGING, **SGD, **SLOW},
    "rounds": ROUND,
    "rounds, sgd": {**ROUND, **SGD},
    "rounds, slow": {**ROUND, **SLOW},
}


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


def test_slow_momentum_after_each_step_of_sgd_is_sgd_with_momentum(results: dict[str, Result]) -> None:
    with mock.patch.dict(os.environ, {**TINY, **SGD}):
        layout = Layout.from_environment()
    losses, weights = with_momentum(layout, 0.5)
    slow = results["each step, sgd, slow"]
    assert slow["losses"] == pytest.approx(losses, abs=1e-5)
    assert greatest_difference(slow, {"weights": weights}, "weights") < 1e-4
    assert greatest_difference(slow, results["each step, sgd"], "weights") > 1e-2


def with_momentum(layout: Layout, momentum: float) -> tuple[dict[int, float], dict[str, Tensor]]:
    """Return the losses and weights of one process with PyTorch's own SGD with momentum."""
    examples = data.Examples(strategies.blocks(), layout.context)
    place = data.Place(len(examples), layout.seed)
    model = build(layout, range(layout.layers), torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), layout.lr, momentum=momentum)
    losses = {}
    for step in range(1, STEPS + 1):
        tokens, targets = examples.batch(place.take(layout.batch_size), torch.device("cpu"))
        optimizer.zero_grad()
        loss = loss_of(model(tokens), targets)
        torch.autograd.backward(loss)
        optimizer.step()
        losses[step] = loss.item()
    return losses, {name: weight.detach() for name, weight in model.named_parameters()}


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


@pytest.mark.parametrize("name", ["rounds", "rounds, slow"])
def test_a_training_that_resumes_between_rounds_is_that_without_a_stop(
    results: dict[str, Result], name: str, tmp_path: Path, forks: Sequence[ForkServer]
) -> None:
    parts = train_all(
        forks,
        tmp_path,
        2,
        {"first": LAYOUTS[name], "second": LAYOUTS[name]},
        SWITCH="1",
        CHECKPOINT_URI=str(tmp_path / "checkpoints"),
        CHECKPOINT_EVERY_STEPS=str(STEPS // 2),
    )
    whole = results[name]
    assert {**parts["first"]["losses"], **parts["second"]["losses"]} == whole["losses"]
    assert greatest_difference(parts["second"], whole, "weights") == 0
