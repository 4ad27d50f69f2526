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


def _without_repeated_steps(points: Iterable[MetricPoint]) -> list[MetricPoint]:
    """Keep the later of repeated steps: an attempt that resumes from a checkpoint repeats some."""
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].attempt < point.attempt and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept
