"""Real groups: they learn what one process learns, and continue after a restart."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from image_classification.train import Parameters

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.images import epochs, trained, trained_in_double, write_digits

WARM = {"WARM_UP": "2"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digit-images"))


@pytest.mark.parametrize("size", [2, 4])
def test_a_group_learns_what_one_process_learns(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer], size: int
) -> None:
    for folder in (alone := tmp_path / "alone", together := tmp_path / "together"):
        folder.mkdir()
    _, model, _ = trained_in_double(forks, "train", alone, data, 1, **WARM)
    _, other, said = trained_in_double(forks, "train", together, data, size, **WARM)
    assert "statistics are those of each rank" not in said, "batch normalization is over the group"
    for one, same in zip(epochs(alone), epochs(together), strict=True):
        assert same["test_loss"] == pytest.approx(one["test_loss"], abs=1e-9)
        assert same["test_accuracy"] == pytest.approx(one["test_accuracy"])
    assert set(other) == set(model)
    for name, value in model.items():
        torch.testing.assert_close(other[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_a_group_that_was_stopped_goes_on_bit_for_bit(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer]
) -> None:
    for folder in (whole := tmp_path / "whole", parts := tmp_path / "parts"):
        folder.mkdir()
    schedule = {**WARM, "MILESTONES": "2"}
    _, model, _ = trained(forks, "train", whole, data, 2, **schedule)
    saved = {**schedule, "CHECKPOINT_URI": str(parts / "saved"), "CHECKPOINT_EVERY_SECONDS": "3600"}
    trained(forks, "train", parts, data, 2, **saved, EPOCHS="2")
    _, resumed, output = trained(forks, "train", parts, data, 2, **saved, JOB_ATTEMPT="2")
    assert "resuming from step 4" in output, "there is a checkpoint after each epoch"
    assert all(torch.equal(resumed[name], value) for name, value in model.items())
    assert epochs(parts) == epochs(whole)


def test_the_learning_rate_warms_up_and_drops_at_milestones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WARM_UP": "3", "MILESTONES": "1,2", "LR": "1"}.items():
        monkeypatch.setenv(name, value)
    parameters = Parameters.from_environment()
    rates = [parameters.rate(step, step // 5) for step in range(11)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01])


def test_without_milestones_the_rate_drops_after_half_and_three_quarters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPOCHS", "7")
    assert Parameters.from_environment().milestones == (4, 6)
