"""Contrastive learning in a group equals one process with all examples."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from trainer_kit import contrast

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher
from tests.support.trainers.programs import contrast as program

SIZES = [1, 2, 4]
Outcomes = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]) -> Outcomes:
    with Launcher(tmp_path_factory.mktemp("contrast"), forks=forks) as launcher:
        return dict(zip(SIZES, outcome_of(launcher, program.__name__, *SIZES), strict=True))


@pytest.mark.parametrize("size", SIZES[1:])
def test_negatives_of_all_ranks_teach_what_one_process_learns(outcomes: Outcomes, size: int) -> None:
    [alone] = outcomes[1]
    for rank in outcomes[size]:
        assert rank["negatives"] == pytest.approx(alone["negatives"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_queue_has_the_keys_of_all_ranks_in_the_same_places(outcomes: Outcomes, size: int) -> None:
    [alone] = outcomes[1]
    for rank in outcomes[size]:
        assert rank["queue"]["weights"] == pytest.approx(alone["queue"]["weights"], rel=1e-9, abs=1e-12)
        for keys, expected in zip(rank["queue"]["keys"], alone["queue"]["keys"], strict=True):
            assert keys == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_query_like_its_own_key_only_loses_nothing() -> None:
    rows = torch.eye(4)
    assert contrast.info_nce(rows, rows, temperature=0.01).item() == pytest.approx(0, abs=1e-6)
    assert contrast.info_nce(rows, rows.roll(1, 0), temperature=0.01).item() > 50


def test_a_full_queue_forgets_its_oldest_keys() -> None:
    queue, rows = contrast.Queue(5, 3), torch.eye(3)
    for keys in (rows, rows, -rows):
        queue.put(keys)
    kept = {tuple(row) for row in queue.keys().tolist()}
    assert kept == {tuple(row) for row in [*(-rows).tolist(), *rows[1:].tolist()]}
    with pytest.raises(ValueError, match="the ranks have 6 keys together, but the queue holds 5"):
        queue.put(torch.ones(6, 3))


def test_a_slow_encoder_keeps_its_share() -> None:
    slow, fast = nn.Linear(2, 2), nn.Linear(2, 2)
    before = slow.weight.detach().clone()
    contrast.follow(slow, fast, momentum=0.75)
    assert torch.allclose(slow.weight, 0.75 * before + 0.25 * fast.weight)


@pytest.mark.parametrize(
    ("keys", "temperature", "message"),
    [
        (torch.ones(3, 3), 0.1, r"must have the same shape \(rows, width\), but have \(2, 3\) and \(3, 3\)"),
        (torch.ones(2, 3), 0.0, "temperature must be above 0, but is 0.0"),
    ],
)
def test_what_does_not_fit_is_refused(keys: torch.Tensor, temperature: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        contrast.info_nce(torch.ones(2, 3), keys, temperature=temperature)
