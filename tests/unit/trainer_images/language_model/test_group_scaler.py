"""The loss scale of fp16: all ranks of every kind of layout skip the same steps, and keep the same scale."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from language_model.assembly import assemble
from language_model.layout import Layout
from language_model.train import fit
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import NullSink

from tests.support.trainers.checkpoints import ALONE, ALONE_IS_FINE
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher
from tests.support.trainers.layouts import TINY
from tests.support.trainers.programs import scaler
from tests.support.trainers.programs.scaler import LAYOUTS, POISONED, SCALE, STEPS
from tests.support.trainers.programs.strategies import blocks

CASES = [(size, name) for size, layouts in LAYOUTS.items() for name in layouts]
PATIENCE = 300
"""Seconds. On a busy machine, the start of PyTorch alone takes many of them."""

pytestmark = ALONE_IS_FINE
Steps = list[dict[str, Any]]


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]
) -> dict[int, list[dict[str, Steps]]]:
    """The steps of each layout, by rank and size of the group."""
    with Launcher(tmp_path_factory.mktemp("scaler"), forks=forks) as launcher:
        return dict(
            zip(LAYOUTS, outcome_of(launcher, scaler.__name__, *LAYOUTS, within=PATIENCE), strict=True)
        )


@pytest.mark.parametrize(("size", "name"), CASES)
def test_all_ranks_skip_the_step_in_which_one_has_an_infinite_gradient(
    trained: dict[int, list[dict[str, Steps]]], size: int, name: str
) -> None:
    for rank in trained[size]:
        assert [step["stepped"] for step in rank[name]] == [n != POISONED for n in range(1, STEPS + 1)]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_the_scale_grows_with_steps_and_is_halved_by_a_skipped_one_on_all_ranks(
    trained: dict[int, list[dict[str, Steps]]], size: int, name: str
) -> None:
    expected = [SCALE, 2 * SCALE, 2 * SCALE, SCALE, SCALE, 2 * SCALE]
    for rank in trained[size]:
        assert [step["scale"] for step in rank[name]] == expected


@pytest.mark.parametrize(("size", "name"), CASES)
def test_the_losses_are_those_of_one_process(
    trained: dict[int, list[dict[str, Steps]]], size: int, name: str
) -> None:
    [alone] = trained[1]
    losses = [step["loss"] for step in trained[size][0][name]]
    assert losses == pytest.approx([step["loss"] for step in alone["alone"]], abs=1e-2)


def test_a_resumed_training_has_the_scale_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {**TINY, "PRECISION": "fp16", "CHECKPOINT_URI": str(tmp_path), "CHECKPOINT_EVERY_STEPS": "2"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def scale_after(steps: str, attempt: str, *, scale: float) -> float:
        monkeypatch.setenv("STEPS", steps)
        monkeypatch.setenv("JOB_ATTEMPT", attempt)
        layout = Layout.from_environment()
        learner = assemble(layout, ALONE)
        learner.scaler.load_state_dict({**learner.scaler.state_dict(), "scale": scale})
        fit(learner, layout, blocks(), ALONE, Reporter(NullSink()))
        return learner.scaler.get_scale()

    assert scale_after("2", "1", scale=SCALE) == SCALE
    assert scale_after("3", "2", scale=8 * SCALE) == SCALE
