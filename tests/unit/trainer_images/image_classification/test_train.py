"""Real groups: they learn what one process learns, and go on after a restart."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_classification.prepare_data import digits
from image_classification.train import Parameters
from torch import Tensor

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Launcher, end_of

SMALL = {"WIDTH": "4", "EPOCHS": "3", "LR": "0.02", "PADDING": "1", "FLIP": "true", "WARM_UP": "2"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """130 images: two steps of 64, and two that are left over."""
    folder = tmp_path_factory.mktemp("digit-images")
    images, labels = digits()
    np.savez(folder / "train.npz", images=images[:130], labels=labels[:130])
    np.savez(folder / "test.npz", images=images[130:171], labels=labels[130:171])
    return folder


def trained(
    forks: Sequence[ForkServer], folder: Path, data: Path, size: int, **variables: str
) -> tuple[list[dict[str, Any]], dict[str, Tensor], str]:
    """Return the metrics of all reports, the model, and the output of rank 0."""
    with Launcher(folder, forks=forks) as launcher:
        group = launcher.start_group(
            size,
            *("-m", "image_classification.train"),
            PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}",
            TRAINING_DATA_URI=str(data),
            MODEL_URI=str(folder / "model"),
            BATCH_SIZE=str(64 // size),
            **SMALL | variables,
        )
        ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
    lines = re.findall(r"^::progress:: ?(.*)$", ends[0].stdout, re.MULTILINE)
    reports = [json.loads(line).get("metrics", {}) for line in lines]
    return reports, torch.load(folder / "model/model.pt"), ends[0].stdout + ends[0].stderr


def epochs(folder: Path) -> list[dict[str, float]]:
    manifest: dict[str, Any] = json.loads((folder / "model/manifest.json").read_text())
    return list(manifest["epochs"])


@pytest.mark.parametrize("size", [2, 4])
def test_a_group_learns_what_one_process_learns(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer], size: int
) -> None:
    for folder in (alone := tmp_path / "alone", together := tmp_path / "together"):
        folder.mkdir()
    _, model, _ = trained(forks, alone, data, 1)
    _, other, said = trained(forks, together, data, size)
    assert "statistics are those of each rank" not in said, "batch normalization is over the group"
    for one, same in zip(epochs(alone), epochs(together), strict=True):
        print("DIFF", same["test_loss"] - one["test_loss"], one["test_loss"])
        assert same["test_loss"] == pytest.approx(one["test_loss"], abs=1e-5)
        assert same["test_accuracy"] == pytest.approx(one["test_accuracy"])
    assert set(other) == set(model)
    for name, value in model.items():
        torch.testing.assert_close(other[name], value, rtol=1e-3, atol=1e-4, msg=name)


def test_a_group_that_was_stopped_goes_on_bit_for_bit(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer]
) -> None:
    for folder in (whole := tmp_path / "whole", parts := tmp_path / "parts"):
        folder.mkdir()
    schedule = {"MILESTONES": "2"}
    _, model, _ = trained(forks, whole, data, 2, **schedule)
    saved = {**schedule, "CHECKPOINT_URI": str(parts / "saved"), "CHECKPOINT_EVERY_SECONDS": "3600"}
    trained(forks, parts, data, 2, **saved, EPOCHS="2")
    _, resumed, output = trained(forks, parts, data, 2, **saved, JOB_ATTEMPT="2")
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
