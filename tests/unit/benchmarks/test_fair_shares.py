"""Shares follow the weights of queues, however few jobs wait."""

import pytest

from benchmarks.fair_shares import shares


@pytest.mark.parametrize("depth", [3, 20])
def test_a_queue_of_three_times_the_weight_gets_three_times_as_much(depth: int) -> None:
    found = shares({"a": 1.0, "b": 3.0}, depth, seconds=7200)
    assert found["b"] == pytest.approx(0.75, abs=0.02)
