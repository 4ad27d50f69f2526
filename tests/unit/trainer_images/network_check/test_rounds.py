import itertools

import pytest
from network_check.rounds import plan, rounds


@pytest.mark.parametrize("size", range(2, 18))
def test_all_pairs_are_measured_once_in_the_least_rounds(size: int) -> None:
    found = rounds(range(size))
    assert sorted(itertools.chain(*found)) == sorted(itertools.combinations(range(size), 2))
    assert len(found) == (size if size % 2 else size - 1)


@pytest.mark.parametrize("size", range(2, 18))
def test_no_rank_is_in_two_pairs_of_a_round(size: int) -> None:
    for pairs in rounds(range(size)):
        members = list(itertools.chain(*pairs))
        assert len(members) == len(set(members))


def test_one_rank_has_no_pairs() -> None:
    assert plan(1, 1) == []


def test_instances_of_several_ranks_are_measured_by_their_first_rank_and_within() -> None:
    assert plan(6, 2) == [[(0, 1), (2, 3), (4, 5)], [(2, 4)], [(0, 4)], [(0, 2)]]
