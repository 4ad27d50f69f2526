"""Real groups whose ranks average their weights in pairs, without waiting for all."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from language_model import theory
from language_model.layout import Layout
from trainer_kit.errors import ParameterError

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT, outcome_of
from tests.support.trainers.launcher import Launcher, end_of
from tests.support.trainers.layouts import TINY
from tests.support.trainers.programs import gossip as program
from tests.support.trainers.programs import killed_gossip

SIZES = [2, 3]


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]
) -> dict[int, list[dict[str, Any]]]:
    with Launcher(tmp_path_factory.mktemp("gossip"), forks=forks) as launcher:
        return dict(zip(SIZES, outcome_of(launcher, program.__name__, *SIZES), strict=True))


@pytest.mark.parametrize("size", SIZES)
def test_averages_in_pairs_keep_the_mean_and_bring_ranks_together(
    outcomes: dict[int, list[dict[str, Any]]], size: int
) -> None:
    before, after = (
        np.array([rank["pairs"][when] for rank in outcomes[size]]) for when in ("before", "after")
    )
    np.testing.assert_allclose(after.mean(0), before.mean(0), atol=1e-12)
    assert after.std(0).max() < 0.01 * before.std(0).max()


@pytest.mark.parametrize("size", SIZES)
def test_both_ranks_of_a_pair_send_their_weights_for_each_average(
    outcomes: dict[int, list[dict[str, Any]]], size: int
) -> None:
    pairs = [rank["pairs"] for rank in outcomes[size]]
    assert [each["asked"] for each in pairs] == [program.EXCHANGES, 0, program.EXCHANGES][:size]
    exchanges = sum(each["asked"] for each in pairs)
    assert sum(each["sent"] for each in pairs) == 2 * exchanges * pairs[0]["size"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["trained", "with a slow rank"])
def test_all_ranks_end_with_the_same_weights_and_have_learned(
    outcomes: dict[int, list[dict[str, Any]]], size: int, kind: str
) -> None:
    ranks = [rank[kind] for rank in outcomes[size]]
    assert len({rank["weights"] for rank in ranks}) == 1
    losses = ranks[0]["losses"]
    assert len(losses) == program.STEPS // program.ROUND
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("size", SIZES)
def test_no_rank_waits_for_one_that_is_slow(outcomes: dict[int, list[dict[str, Any]]], size: int) -> None:
    returned = outcomes[size][0]["with a slow rank"]["returned"]
    assert returned["shares_of_slowest"] == 1, "the others have taken all but one share of the round"
    assert returned["shares_of_fastest"] >= (size * program.ROUND - 1) / (size - 1)


@pytest.mark.parametrize("size", SIZES)
def test_the_counted_bytes_are_those_of_the_pairs_and_of_the_average_after_each_round(
    outcomes: dict[int, list[dict[str, Any]]], size: int
) -> None:
    for each in (rank["trained"] for rank in outcomes[size]):
        with_moments = 3 * each["size"]
        rounds = program.STEPS // program.ROUND
        averages = rounds * 2 * (size - 1) / size * with_moments
        assert each["counted"] == pytest.approx(each["sent"] + averages)


@pytest.mark.parametrize(("killed", "seen_by"), [(0, {1}), (1, {0, 2})])
def test_a_lost_rank_ends_its_peers_with_its_number(
    tmp_path: Path, forks: Sequence[ForkServer], killed: int, seen_by: set[int]
) -> None:
    path = f"{ROOT}:{ROOT / 'trainer_images'}"
    with Launcher(tmp_path, forks=forks) as launcher:
        group = launcher.start_group(3, "-m", killed_gossip.__name__, PYTHONPATH=path, KILLED=str(killed))
        ends = [end_of(process) for process in group]
    for rank, end in enumerate(ends):
        assert end.code == (-signal.SIGKILL if rank == killed else 1), end
        if rank in seen_by:
            assert f"rank {killed} is gone or does not answer" in end.stderr


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_formula_counts_both_ways_of_each_average(count: int) -> None:
    variables = {**TINY, "STRATEGY": "gossip", "OPTIMIZER": "sgd", "STEPS": "20", "LOCAL_STEPS": "10"}
    variables["BATCH_SIZE"] = "12"
    with mock.patch.dict(os.environ, {**variables, "WORLD_SIZE": str(count)}):
        layout = Layout.from_environment()
    actives = {2: 1, 3: 2, 4: 2}[count]
    own = theory.parameters(layout) * 4
    in_pairs, of_all = 2 * actives / count, 2 * (count - 1) / count / 10
    assert theory.bytes_sent(layout) == pytest.approx(own * (in_pairs + of_all))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"TENSOR": "2"}, "STRATEGY=gossip needs whole models, PIPELINE 1 and TENSOR 1"),
        ({"LOCAL_STEPS": "3"}, "STEPS 20 is not a multiple of LOCAL_STEPS 3"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, str], message: str) -> None:
    variables = {**TINY, "STRATEGY": "gossip", "STEPS": "20", "WORLD_SIZE": "2", **changed}
    with mock.patch.dict(os.environ, variables), pytest.raises(ParameterError, match=message):
        Layout.from_environment()
