from fractions import Fraction

import pytest
from language_model.all_reduce import theory
from language_model.all_reduce.theory import Traffic

SIZES = range(1, 20)


@pytest.mark.parametrize("size", SIZES)
def test_what_each_sends_adds_up_to_what_all_send(size: int) -> None:
    assert size * theory.ring(size).share == theory.of_all(size)
    assert sum(theory.halving_doubling(rank, size).share for rank in range(size)) == theory.of_all(size)
    for part in SIZES:
        assert sum(theory.hierarchical(r, size, part).share for r in range(size)) == theory.of_all(size)
        if size % part == 0:
            assert size * theory.torus(size, columns=part).share == theory.of_all(size)


def test_the_figures_of_the_papers() -> None:
    assert theory.ring(4) == Traffic(Fraction(3, 2), 6)
    assert theory.halving_doubling(0, 8) == Traffic(Fraction(7, 4), 6)
    assert theory.torus(1024, columns=32) == Traffic(2 * Fraction(1023, 1024), 124)
    assert theory.hierarchical(0, 64, node_size=8) == Traffic(Fraction(7, 4) + 3, 14 + 3)


def test_a_group_of_one_sends_nothing() -> None:
    nothing = Traffic(Fraction(0), 0)
    assert theory.ring(1) == theory.halving_doubling(0, 1) == nothing
    assert theory.hierarchical(0, 1, node_size=4) == theory.torus(1, columns=1) == nothing
