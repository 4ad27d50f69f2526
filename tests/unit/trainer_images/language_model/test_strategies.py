"""Real groups of processes: every strategy learns what one process learns."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.trainer_images.language_model.layouts import STEPS
from tests.unit.trainer_images.language_model.strategies import EXACT, LOSSY, ROUNDED
from tests.unit.trainer_images.support import Launcher, end_of

PROGRAM = ("-m", "tests.unit.trainer_images.language_model.program")
ROOT = Path(__file__).parents[4]
PATIENCE = 300
"""Seconds: on a machine that others use too, starting PyTorch alone takes many."""

LOSS_TOLERANCE, WEIGHT_TOLERANCE = 1e-5, 1e-4
"""Of sums in another order, in fp32, after 20 steps of Adam: losses begin at 5.5 and weights reach 0.3."""
ROUNDED_LOSS_TOLERANCE = 1e-2
LOSSY_LOSS_TOLERANCE = 0.5

pytestmark = pytest.mark.timeout(600)
Result = dict[str, Any]


def _cases(groups: dict[int, dict[str, dict[str, str]]]) -> list[tuple[int, str]]:
    return [(size, name) for size, strategies in groups.items() for name in strategies]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], dict[str, Result]]]:
    """What each strategy of a group of so many processes came to; they are all trained in one start."""

    @cache
    def train(size: int) -> dict[str, Result]:
        folder = tmp_path_factory.mktemp(f"by-{size}")
        layouts = {
            name: told for groups in (EXACT, ROUNDED, LOSSY) for name, told in groups.get(size, {}).items()
        }
        launcher = Launcher(folder)
        try:
            group = launcher.start_group(
                size,
                *PROGRAM,
                LAYOUTS=json.dumps(layouts or {"alone": {}}),
                RESULTS=str(folder),
                PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}",
            )
            ends = [end_of(process, within=PATIENCE) for process in group]
        finally:
            launcher.close()
        assert [end.code for end in ends] == [0] * size, [end.stderr for end in ends]
        return {file.stem: torch.load(file, weights_only=False) for file in folder.glob("*.pt")}

    yield train
    train.cache_clear()


@pytest.fixture(scope="module")
def alone(results: Callable[[int], dict[str, Result]]) -> Result:
    return results(1)["alone"]


def _greatest_difference(one: Result, other: Result, of: str) -> float:
    if of == "losses":
        return max(abs(a - b) for a, b in zip(one[of], other[of], strict=True))
    assert one[of].keys() == other[of].keys()
    return max(float((one[of][name] - other[of][name]).abs().max()) for name in one[of])


def test_one_process_learns(alone: Result) -> None:
    assert len(alone["losses"]) == STEPS
    assert alone["losses"][0] == pytest.approx(5.55, abs=0.05)  # ln 256
    assert alone["losses"][-1] < 4.5


@pytest.mark.parametrize(("size", "name"), _cases(EXACT))
def test_a_strategy_learns_what_one_process_learns(
    results: Callable[[int], dict[str, Result]], alone: Result, size: int, name: str
) -> None:
    result = results(size)[name]
    assert _greatest_difference(result, alone, "losses") < LOSS_TOLERANCE
    assert _greatest_difference(result, alone, "weights") < WEIGHT_TOLERANCE


@pytest.mark.parametrize(("size", "name"), _cases(ROUNDED))
def test_a_strategy_that_rounds_stays_near(
    results: Callable[[int], dict[str, Result]], alone: Result, size: int, name: str
) -> None:
    difference = _greatest_difference(results(size)[name], alone, "losses")
    assert LOSS_TOLERANCE < difference < ROUNDED_LOSS_TOLERANCE


@pytest.mark.parametrize(("size", "name"), _cases(LOSSY))
def test_a_strategy_that_leaves_something_out_learns_all_the_same(
    results: Callable[[int], dict[str, Result]], alone: Result, size: int, name: str
) -> None:
    difference = _greatest_difference(results(size)[name], alone, "losses")
    assert LOSS_TOLERANCE < difference < LOSSY_LOSS_TOLERANCE
