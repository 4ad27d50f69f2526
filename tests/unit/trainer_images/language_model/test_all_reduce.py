from collections.abc import Sequence
from typing import Any

import pytest
from language_model.all_reduce import theory
from language_model.all_reduce.topology import BY_HAND, Topology

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher
from tests.support.trainers.programs import all_reduce as program
from tests.support.trainers.programs.all_reduce import CASES, COUNTED, NODE_SIZE

TOLERANCES = {"torch.float32": 2e-6, "torch.float64": 2e-15, "torch.bfloat16": 0.1}
"""Absolute, for sums of seven standard normal numbers, each rounded six times."""

SIZES = [2, 3, 4, 6, 7]

Cases = list[list[dict[str, Any]]]
"""The results of each rank for each case."""

Summed = dict[int, Cases]


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]) -> Summed:
    """Run groups of these sizes, and return their results."""
    with Launcher(tmp_path_factory.mktemp("all-reduce"), forks=forks) as launcher:
        return dict(zip(SIZES, outcome_of(launcher, program.__name__, *SIZES), strict=True))


@pytest.mark.parametrize("size", SIZES)
def test_sums_equal_those_of_the_library_for_any_tensor(summed: Summed, size: int) -> None:
    sums = [case for cases in summed[size] for case in cases if "error" in case]
    assert len(sums) == size * len(BY_HAND) * len(CASES)
    wrong = [case for case in sums if not case["error"] <= TOLERANCES[case["dtype"]]]
    assert not wrong


@pytest.mark.parametrize("size", SIZES)
def test_all_ranks_get_identical_sums(summed: Summed, size: int) -> None:
    digests = [[case["digest"] for case in cases if "digest" in case] for cases in summed[size]]
    assert all(others == digests[0] for others in digests)


@pytest.mark.parametrize("topology", BY_HAND)
@pytest.mark.parametrize("size", SIZES)
def test_the_traffic_of_each_rank_matches_the_formula(summed: Summed, size: int, topology: Topology) -> None:
    for rank, cases in enumerate(summed[size]):
        expected = theory.of_rank(topology, rank, size, NODE_SIZE)
        for case in cases:
            if case["topology"] == topology and case.get("count") == COUNTED:
                assert case["bytes"] == expected.share * case["tensor_bytes"]
                assert case["messages"] == expected.messages


@pytest.mark.parametrize("size", SIZES)
def test_the_total_traffic_is_the_same_for_all_algorithms_and_tensors(summed: Summed, size: int) -> None:
    for same_case in zip(*summed[size], strict=True):
        if "bytes" in same_case[0]:
            sent = sum(case["bytes"] for case in same_case)
            assert sent == theory.of_all(size) * same_case[0]["tensor_bytes"], same_case[0]


@pytest.mark.parametrize("topology", BY_HAND)
@pytest.mark.parametrize("size", SIZES)
def test_losses_equal_those_of_distributed_data_parallel(
    summed: Summed, size: int, topology: Topology
) -> None:
    for cases in summed[size]:
        losses = {case["topology"]: case["losses"] for case in cases if "losses" in case}
        assert losses[topology] == pytest.approx(losses[Topology.LIBRARY], rel=1e-12)
        assert len(set(losses[topology])) > 1
