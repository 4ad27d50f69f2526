"""The tiny model that every strategy trains, and its training in groups of processes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.launcher import Launcher, end_of

STEPS = 12
TINY = {"LAYERS": "4", "HEADS": "4", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "16", "LR": "0.003"}
PROGRAM = ("-m", "tests.support.trainers.programs.strategies")
ROOT = Path(__file__).parents[3]
Result = dict[str, Any]


def train_all(
    forks: Sequence[ForkServer],
    folder: Path,
    size: int,
    layouts: dict[str, dict[str, str]],
    steps: int = STEPS,
    **variables: str,
) -> dict[str, Result]:
    """Train with each of these layouts in one group, and return the results by the names of the layouts."""
    shared = {
        "LAYOUTS": json.dumps(layouts),
        "LAST_STEP": str(steps),
        "RESULTS": str(folder),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'trainer_images'}",
    }
    with Launcher(folder, forks=forks) as launcher:
        group = launcher.start_group(size, *PROGRAM, **shared, **variables)
        ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
    return {file.stem: torch.load(file) for file in folder.glob("*.pt")}


def greatest_difference(one: Result, other: Result, of: str) -> float:
    """Return the largest difference between two results. `of` is "losses" or "weights"."""
    if of == "losses":
        return float(max(abs(loss - other[of][step]) for step, loss in one[of].items()))
    assert one[of].keys() == other[of].keys()
    return max(float((one[of][name] - other[of][name]).abs().max()) for name in one[of])
