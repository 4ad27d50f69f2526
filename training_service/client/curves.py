"""Metrics of several jobs as curves for one plot."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from training_service._generated.training_service_pb2 import (
    GetTrainingStatusResponse,
    MetricPoint,
    MetricSeries,
)


@dataclass(frozen=True)
class Slow:
    """A rank that is slow now, or was slow when its attempt ended."""

    rank: int
    factor: float
    since: datetime


@dataclass(frozen=True)
class Curve:
    """The values of one metric of one job by step."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]
    slow: Sequence[tuple[int, Slow]] = ()
    """Pairs of an index into `steps` and a slow rank. The index is that of the first point after the rank
    became slow or, if there is no such point, that of the last point.
    """

    @property
    def runs(self) -> Iterator[tuple[Sequence[int], Sequence[float]]]:
        """Yield the steps and values of each uninterrupted run of finite values."""
        points = zip(self.steps, self.values, strict=True)
        for is_finite, group in groupby(points, key=lambda point: math.isfinite(point[1])):
            if is_finite:
                steps, values = zip(*group, strict=True)
                yield steps, values

    @property
    def nonfinite(self) -> Sequence[tuple[int, float]]:
        """Return the points whose values are NaN or infinite, as (step, value)."""
        points = zip(self.steps, self.values, strict=True)
        return [(step, value) for step, value in points if not math.isfinite(value)]


def slow_ranks(status: GetTrainingStatusResponse) -> list[Slow]:
    """Return a job's slow ranks (see `Slow`), the slowest first."""
    slow = [
        Slow(each.rank, each.pace.slowness, each.pace.slow_since.ToDatetime(UTC))
        for each in status.ranks
        if each.pace.HasField("slow_since")
    ]
    return sorted(slow, key=lambda each: -each.factor)


def curves_by_metric(
    found: Mapping[str, Iterable[MetricSeries]], slow: Mapping[str, Sequence[Slow]] | None = None
) -> dict[str, list[Curve]]:
    """Return the curves of each metric.

    `found` has the series of each job, by the job's label. `slow` has the slow ranks of each job, by the same
    label. A slow rank is marked at the first point after it became slow; if there is no such point, at the
    last point.
    """
    curves: dict[str, list[Curve]] = {}
    for label, all_series in found.items():
        for series in all_series:
            points = _without_repeated_steps(series.points)
            times = [p.at.ToDatetime(UTC) for p in points]
            marks = [
                (next((n for n, at in enumerate(times) if at >= each.since), len(times) - 1), each)
                for each in (slow or {}).get(label, ())
                if times
            ]
            curve = Curve(label, [p.step for p in points], [p.value for p in points], tuple(marks))
            curves.setdefault(series.name, []).append(curve)
    return dict(sorted(curves.items()))


def smoothed(found: MetricSeries, weight: float) -> MetricSeries:
    """Return the series with exponential moving averages instead of its values.

    `weight` is at least 0 and below 1. A weight of 0 changes no value, and a larger weight makes the curve
    smoother. The averages are corrected for their bias towards 0 (as in Kingma and Ba, 2015), so that the
    curve does not begin near 0. Values that are NaN or infinite stay as they are, and the averages leave them
    out. Points that a later attempt has replaced are left out.
    """
    result = MetricSeries(job_id=found.job_id, name=found.name)
    average, share = 0.0, 1.0
    for point in _without_repeated_steps(found.points):
        kept = result.points.add()
        kept.CopyFrom(point)
        if math.isfinite(point.value):
            average = weight * average + (1 - weight) * point.value
            share *= weight
            kept.value = average / (1 - share)
    return result


def _without_repeated_steps(points: Iterable[MetricPoint]) -> list[MetricPoint]:
    """Return the points without those that a later attempt has replaced.

    An attempt that resumes from a checkpoint repeats some steps; its points replace earlier ones.
    """
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].attempt < point.attempt and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept
