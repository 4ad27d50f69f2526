from fractions import Fraction

import pytest
from language_model.all_reduce import theory
from language_model.all_reduce.theory import Traffic
from language_model.all_reduce.topology import BY_HAND

SIZES = range(1, 20)


@pytest.mark.parametrize("size", SIZES)
def test_what_each_sends_adds_up_to_what_all_send(size: int) -> None:
    assert size * theory.ring(size).share == theory.of_all(size)
    for formula in (theory.star, theory.tree, theory.halving_doubling, theory.binary_blocks):
        assert sum(formula(rank, size).share for rank in range(size)) == theory.of_all(size)
    for part in SIZES:
        for in_nodes in (theory.hierarchical, theory.hierarchical_ring):
            assert sum(in_nodes(r, size, part).share for r in range(size)) == theory.of_all(size)
        if size % part == 0:
            assert size * theory.torus(size, columns=part).share == theory.of_all(size)


def test_the_figures_of_the_papers() -> None:
    assert theory.ring(4) == Traffic(Fraction(3, 2), 6)
    assert theory.halving_doubling(0, 8) == Traffic(Fraction(7, 4), 6)
    assert theory.binary_blocks(0, 8) == theory.halving_doubling(0, 8)
    # Blocks of 4, 2 and 1: the largest sends no more than 2 S, where folding sends 3 S.
    assert [theory.binary_blocks(rank, 7) for rank in (0, 4, 6)] == [
        Traffic(Fraction(7, 4), 5),
        Traffic(Fraction(2), 5),
        Traffic(Fraction(1), 2),
    ]
    assert theory.star(0, 9) == Traffic(Fraction(8), 8)
    assert theory.tree(1, 9) == Traffic(Fraction(3), 3)
    assert theory.hierarchical_ring(0, 64, node_size=8) == Traffic(Fraction(7, 4) + 1, 14 + 8)
    assert theory.torus(1024, columns=32) == Traffic(2 * Fraction(1023, 1024), 124)
    assert theory.hierarchical(0, 64, node_size=8) == Traffic(Fraction(7, 4) + 3, 14 + 3)


def test_a_group_of_one_sends_nothing() -> None:
    nothing = Traffic(Fraction(0), 0)
    assert all(theory.of_rank(topology, 0, 1, node_size=4) == nothing for topology in BY_HAND)


def test_a_torus_has_the_squarest_grid() -> None:
    assert [theory.squarest_columns(size) for size in (2, 3, 4, 6, 7, 12, 16)] == [2, 3, 2, 3, 7, 4, 4]
