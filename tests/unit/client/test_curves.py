"""Series of several jobs as curves."""

import math
from datetime import UTC, datetime

import pytest

from training_service._generated import training_service_pb2 as pb
from training_service.client.curves import Curve, Slow, curves_by_metric, slow_ranks, smoothed


def series(name: str, *points: tuple[int, int, float]) -> pb.MetricSeries:
    return pb.MetricSeries(
        name=name, points=[pb.MetricPoint(attempt=a, step=s, value=v) for a, s, v in points]
    )


def test_each_metric_has_one_curve_per_job() -> None:
    found = {
        "one": [series("loss", (1, 1, 0.5), (1, 2, 0.25)), series("accuracy", (1, 1, 0.1))],
        "two": [series("loss", (1, 1, 0.75))],
    }
    assert curves_by_metric(found) == {
        "accuracy": [Curve("one", [1], [0.1])],
        "loss": [Curve("one", [1, 2], [0.5, 0.25]), Curve("two", [1], [0.75])],
    }


@pytest.mark.parametrize(("second", "place"), [(0, 0), (15, 1), (20, 1), (99, 2)])
def test_a_slow_rank_is_marked_where_it_began(second: int, place: int) -> None:
    taken = series("loss", (1, 10, 3), (1, 20, 2), (1, 30, 1))
    for point in taken.points:
        point.at.FromSeconds(point.step)
    status = pb.GetTrainingStatusResponse()
    status.ranks.add(rank=0)
    status.ranks.add(rank=1).pace.slowness = 1.3
    status.ranks[1].pace.slow_since.FromSeconds(second)
    [slow] = slow_ranks(status)
    assert slow == Slow(1, 1.3, datetime.fromtimestamp(second, UTC))
    [curve] = curves_by_metric({"job": [taken]}, {"job": [slow]})["loss"]
    assert curve.slow == ((place, slow),)


def test_the_later_attempt_counts_for_repeated_steps() -> None:
    taken = series("loss", (1, 1, 9), (1, 2, 8), (1, 3, 7), (2, 2, 6), (2, 3, 5), (3, 3, 4), (3, 4, 3))
    [curve] = curves_by_metric({"job": [taken]})["loss"]
    assert (curve.steps, curve.values) == ([1, 2, 3, 4], [9, 6, 4, 3])


def test_steps_within_an_attempt_keep_their_order() -> None:
    [curve] = curves_by_metric({"job": [series("loss", (1, 5, 1), (1, 5, 2), (1, 4, 3))]})["loss"]
    assert curve.steps == [5, 5, 4]


def test_values_that_are_not_finite_part_a_curve() -> None:
    curve = Curve("job", [1, 2, 3, 4], [1.0, math.inf, 3.0, math.nan])
    assert list(curve.runs) == [((1,), (1.0,)), ((3,), (3.0,))]
    assert [step for step, _ in curve.nonfinite] == [2, 4]


def test_smoothing_leaves_out_values_that_are_not_finite() -> None:
    taken = series("loss", (1, 1, 4), (1, 2, math.nan), (1, 3, 4))
    assert [str(p.value) for p in smoothed(taken, 0.5).points] == ["4.0", "nan", "4.0"]


def test_smoothing_averages_without_a_bias_to_zero() -> None:
    taken = series("loss", (1, 1, 4), (1, 2, 8), (1, 3, 8))
    # (0.5 * 4 + 8) / 1.5 and (0.25 * 4 + 0.5 * 8 + 8) / 1.75
    assert [round(p.value, 6) for p in smoothed(taken, 0.5).points] == [
        4.0,
        round(10 / 1.5, 6),
        round(13 / 1.75, 6),
    ]
    assert smoothed(taken, 0) == taken
    level = series("loss", *((1, step, 7.0) for step in range(1, 500)))
    assert all(abs(point.value - 7) < 1e-9 for point in smoothed(level, 0.99).points)


def test_smoothing_counts_repeated_steps_once() -> None:
    again = smoothed(series("loss", (1, 1, 4), (1, 2, 99), (2, 2, 8)), 0.5)
    assert [(p.step, p.attempt) for p in again.points] == [(1, 1), (2, 2)]
    assert again == smoothed(series("loss", (1, 1, 4), (2, 2, 8)), 0.5)
