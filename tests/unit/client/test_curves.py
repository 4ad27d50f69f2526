"""Series of several jobs as curves."""

from training_service._generated import training_service_pb2 as pb
from training_service.client.curves import Curve, curves_by_metric


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


def test_the_later_attempt_counts_for_repeated_steps() -> None:
    taken = series("loss", (1, 1, 9), (1, 2, 8), (1, 3, 7), (2, 2, 6), (2, 3, 5), (3, 3, 4), (3, 4, 3))
    [curve] = curves_by_metric({"job": [taken]})["loss"]
    assert (curve.steps, curve.values) == ([1, 2, 3, 4], [9, 6, 4, 3])


def test_steps_within_an_attempt_keep_their_order() -> None:
    [curve] = curves_by_metric({"job": [series("loss", (1, 5, 1), (1, 5, 2), (1, 4, 3))]})["loss"]
    assert curve.steps == [5, 5, 4]
