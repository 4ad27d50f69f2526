"""Metrics of several jobs as curves that can be laid over each other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from training_service._generated.training_service_pb2 import MetricPoint, MetricSeries


@dataclass(frozen=True)
class Curve:
    """One metric of one job: values by step."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]


def curves_by_metric(found: Mapping[str, Iterable[MetricSeries]]) -> dict[str, list[Curve]]:
    """The curves of each metric, from the series of each job by its label."""
    curves: dict[str, list[Curve]] = {}
    for label, all_series in found.items():
        for series in all_series:
            points = _without_steps_taken_again(series.points)
            curve = Curve(label, [p.step for p in points], [p.value for p in points])
            curves.setdefault(series.name, []).append(curve)
    return dict(sorted(curves.items()))


def _without_steps_taken_again(points: Iterable[MetricPoint]) -> list[MetricPoint]:
    """An attempt that went on from a checkpoint has taken steps again: the later ones count."""
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].attempt < point.attempt and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept
