"""Marks on the plots of curves."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from training_service.client.cli.render import plots
from training_service.client.curves import Curve, Slow

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def curve(factors: Sequence[float], values: Sequence[float] = (3.0, 2.0, 1.0)) -> Curve:
    slow = tuple((1, Slow(rank, factor, NOON)) for rank, factor in enumerate(factors, start=2))
    return Curve("job 7", [10, 20, 30], values, slow)


@pytest.mark.parametrize("values", [(3.0, 2.0, 1.0), (3.0, math.nan, 1.0)])
def test_a_slow_rank_is_marked_with_its_factor_and_since_when(
    tmp_path: Path, values: Sequence[float]
) -> None:
    note = "rank 2 takes 1.3 times as long, since step 20"
    assert note in plots.drawn({"loss": [curve([1.3], values)]}, 100)
    plots.save({"loss": [curve([1.3], values)]}, tmp_path / "loss.svg")
    assert f"<!-- {note} -->" in (tmp_path / "loss.svg").read_text()


def test_only_the_slowest_of_many_are_marked(tmp_path: Path) -> None:
    plots.save({"loss": [curve([2, 1.9, 1.8, 1.7, 1.6])]}, tmp_path / "loss.svg")
    text = (tmp_path / "loss.svg").read_text()
    assert "rank 4 takes 1.8 times as long, since step 20; 2 more ranks are slow" in text
    assert "rank 5" not in text


def test_a_plot_without_slow_ranks_has_no_such_mark(tmp_path: Path) -> None:
    plots.save({"loss": [curve([])]}, tmp_path / "loss.svg")
    assert "times as long" not in (tmp_path / "loss.svg").read_text()
