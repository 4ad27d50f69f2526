"""Metrics of several jobs as curves for one plot."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from training_service._generated.training_service_pb2 import MetricPoint, MetricSeries


@dataclass(frozen=True)
class Curve:
    """The values of one metric of one job by step."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]


def curves_by_metric(found: Mapping[str, Iterable[MetricSeries]]) -> dict[str, list[Curve]]:
    """Return the curves of each metric, given each job's series by its label."""
    curves: dict[str, list[Curve]] = {}
    for label, all_series in found.items():
        for series in all_series:
            points = _without_repeated_steps(series.points)
            curve = Curve(label, [p.step for p in points], [p.value for p in points])
            curves.setdefault(series.name, []).append(curve)
    return dict(sorted(curves.items()))


def smoothed(found: MetricSeries, weight: float) -> MetricSeries:
    """Return the series with exponential moving averages in place of its values.

    A `weight` of 0 changes nothing, and values below 1 that are higher smooth more. The first averages are
    corrected for their few values (as in Kingma and Ba, 2015), so that the curve does not begin at 0.
    """
    result = MetricSeries(job_id=found.job_id, name=found.name)
    average, share = 0.0, 1.0
    for point in _without_repeated_steps(found.points):
        average = weight * average + (1 - weight) * point.value
        share *= weight
        kept = result.points.add()
        kept.CopyFrom(point)
        kept.value = average / (1 - share)
    return result


def _without_repeated_steps(points: Iterable[MetricPoint]) -> list[MetricPoint]:
    """Keep the later of repeated steps: an attempt that resumes from a checkpoint repeats some."""
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].attempt < point.attempt and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept
