"""Groups that learn from a few images of digits."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from image_classification.prepare_data import digits
from torch import Tensor

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Launcher, end_of

BATCH = 64
"""The number of images of a step of the whole group."""
SMALL = {"WIDTH": "4", "EPOCHS": "3", "LR": "0.02", "PADDING": "1", "FLIP": "true"}


def write_digits(folder: Path) -> Path:
    """Write 130 images for training (two steps, and two images left over), and 41 images for tests."""
    images, labels = digits()
    np.savez(folder / "train.npz", images=images[:130], labels=labels[:130])
    np.savez(folder / "test.npz", images=images[130:171], labels=labels[130:171])
    return folder


Trained = tuple[list[dict[str, Any]], dict[str, Tensor], str]
"""The metrics of all reports, the model, and the output of rank 0."""


def trained(
    forks: Sequence[ForkServer], module: str, folder: Path, data: Path, size: int, **variables: str
) -> Trained:
    """Train in a group."""
    return _trained(forks, [f"image_classification.{module}"], folder, data, size, variables)


def trained_in_double(
    forks: Sequence[ForkServer], module: str, folder: Path, data: Path, size: int, **variables: str
) -> Trained:
    """Train in a group with 64-bit numbers."""
    program = ["tests.support.trainers.programs.images_in_double", f"image_classification.{module}"]
    return _trained(forks, program, folder, data, size, variables)


def _trained(
    forks: Sequence[ForkServer],
    program: Sequence[str],
    folder: Path,
    data: Path,
    size: int,
    variables: Mapping[str, str],
) -> Trained:
    with Launcher(folder, forks=forks) as launcher:
        group = launcher.start_group(
            size,
            *("-m", *program),
            PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}",
            TRAINING_DATA_URI=str(data),
            MODEL_URI=str(folder / "model"),
            BATCH_SIZE=str(BATCH // size),
            **{**SMALL, **variables},
        )
        ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
    lines = re.findall(r"^::progress:: ?(.*)$", ends[0].stdout, re.MULTILINE)
    reports = [json.loads(line).get("metrics", {}) for line in lines]
    return reports, torch.load(folder / "model/model.pt"), ends[0].stdout + ends[0].stderr


def epochs(folder: Path) -> list[dict[str, float]]:
    """Return the metrics of each epoch from the model's manifest in the folder."""
    manifest: dict[str, Any] = json.loads((folder / "model/manifest.json").read_text())
    return list(manifest["epochs"])
