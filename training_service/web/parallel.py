"""Jobs that differ in parameters, as parallel coordinates: an axis for each parameter, and a last axis for a
metric.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.domain.job import Job
from training_service.web.showing import number

MOST_AXES: Final = 9
"""The largest number of parameters that have an axis. The table shows all parameters that differ."""
_MOST_CATEGORIES: Final = 12
_LOGARITHMIC_FROM: Final = 20.0
"""An axis is logarithmic if its smallest value is above 0, and its largest value is at least this many times
as large."""
_SHADES: Final = 5
_USUAL: Final = ("accuracy", "score", "loss", "error")
_NOT_SET: Final = "not set"


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """A value beside an axis."""

    place: float
    """Percent of the height, from the top."""
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis of a parameter or of the metric."""

    name: str
    place: float
    """Percent of the width."""
    labels: Sequence[AxisLabel]
    is_logarithmic: bool


@dataclass(frozen=True, slots=True)
class Line:
    """The line of a job. The coordinates of its points are from 0 to 100."""

    job: Job
    points: str
    shade: int
    """The shade, from 1 to 5: higher values of the metric have higher shades. 0: the job has no value."""
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """A job in the table."""

    job: Job
    values: Sequence[str]
    """The values of the parameters that differ."""
    result: float | None
    """The last value of the metric. None: there is none, or it is not finite."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """The picture and the table beside it."""

    names: Sequence[str]
    """The parameters that differ."""
    metric: str
    """The metric of the last axis. Empty: no job has a metric."""
    metrics: Sequence[str]
    """All metrics that may be chosen."""
    axes: Sequence[Axis]
    lines: Sequence[Line]
    rows: Sequence[Row]
    """The rows in the order of their results, the highest first. Rows without a result come last."""


def parallel_of(jobs: Sequence[Job], metric: str = "") -> Parallel:
    """Return the picture of some jobs.

    If no job has the metric `metric`, `_usual` chooses one.
    """
    parameters = {job.id: _parameters(job) for job in jobs}
    names = _differing(parameters.values())
    metrics = _metrics(jobs)
    chosen = metric if metric in metrics else _usual(metrics)
    results = {job.id: _result(job, chosen) for job in jobs}
    scales = [_Scale([parameters[job.id].get(name, _NOT_SET) for job in jobs]) for name in names[:MOST_AXES]]
    known = [result for result in results.values() if result is not None]
    last = _Scale([repr(result) for result in known]) if known else None
    count = len(scales) + (last is not None)
    places = [100.0 * place / max(1, count - 1) for place in range(count)]
    axes = [
        Axis(name, place, scale.labels, scale.is_logarithmic)
        for name, place, scale in zip(names, places, scales, strict=False)
    ]
    if last is not None:
        axes.append(Axis(chosen, places[-1], last.labels, last.is_logarithmic))
    order = sorted(known)
    lines = []
    for job in jobs:
        values = [parameters[job.id].get(name, _NOT_SET) for name in names[:MOST_AXES]]
        heights = [scale.height(value) for scale, value in zip(scales, values, strict=True)]
        result = results[job.id]
        if last is not None and result is not None:
            heights.append(last.height(repr(result)))
        points = " ".join(f"{place:.2f},{height:.2f}" for place, height in zip(places, heights, strict=False))
        texts = [f"{name} {value}" for name, value in zip(names, values, strict=False)]
        texts += [f"{chosen} {number(result)}"] if result is not None else []
        lines.append(Line(job, points, _shade(result, order), f"Job {job.id}: {', '.join(texts)}"))
    rows = [
        Row(job, [parameters[job.id].get(name, _NOT_SET) for name in names], results[job.id]) for job in jobs
    ]
    rows.sort(key=lambda row: -math.inf if row.result is None else row.result, reverse=True)
    return Parallel(names, chosen, metrics, axes if count > 1 else [], lines, rows)


def _differing(parameters: Collection[Mapping[str, str]]) -> list[str]:
    """Return the parameters in which jobs differ, in the order in which the jobs first name them."""
    names = dict.fromkeys(name for each in parameters for name in each)
    return [name for name in names if len({each.get(name, _NOT_SET) for each in parameters}) > 1]


class _Scale:
    """Heights of values on an axis: numbers on a linear or logarithmic scale, or words at equal distances."""

    def __init__(self, texts: Sequence[str]) -> None:
        numbers = [_number(text) for text in texts]
        self._words: list[str] = []
        self.is_logarithmic = False
        found = [value for value in numbers if value is not None]
        if len(found) == len(numbers):
            self._least, self._most = min(found), max(found)
            self.is_logarithmic = self._least > 0 and self._most / self._least >= _LOGARITHMIC_FROM
            middle = [] if self._least == self._most else [self._most]
            self.labels = [
                AxisLabel(self.height(repr(value)), number(value)) for value in (self._least, *middle)
            ]
        else:
            self._words = list(dict.fromkeys(sorted(texts)))
            step = max(1, math.ceil(len(self._words) / _MOST_CATEGORIES))
            self.labels = [AxisLabel(self.height(word), word) for word in self._words[::step]]

    def height(self, text: str) -> float:
        """Return the place of a value, in percent from the top."""
        if self._words:
            return 100.0 * (1 - self._words.index(text) / max(1, len(self._words) - 1))
        least, most, value = self._least, self._most, float(text)
        if self.is_logarithmic:
            least, most, value = math.log(least), math.log(most), math.log(value)
        return 100.0 * (1 - (value - least) / (most - least)) if most > least else 50.0


def _parameters(job: Job) -> Mapping[str, str]:
    return {"instances": str(job.spec.instances), **job.spec.environment, **job.spec.parameters}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _metrics(jobs: Sequence[Job]) -> list[str]:
    """Return the names of the jobs' metrics. Metrics that more jobs have come first."""
    counts: dict[str, int] = {}
    for job in jobs:
        for name in job.progress.metrics if job.progress else ():
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def _usual(metrics: Sequence[str]) -> str:
    """Return the first metric with "accuracy" in its name.

    If there is none, look for "score", then for "loss", then for "error". Without such a metric, return the
    first one; "" if there are none.
    """
    for part in _USUAL:
        for name in metrics:
            if part in name.lower():
                return name
    return next(iter(metrics), "")


def _result(job: Job, metric: str) -> float | None:
    value = job.progress.metrics.get(metric) if job.progress else None
    return value if value is not None and math.isfinite(value) else None


def _shade(result: float | None, order: Sequence[float]) -> int:
    if result is None:
        return 0
    if len(order) == 1:
        return _SHADES
    return 1 + round((_SHADES - 1) * order.index(result) / (len(order) - 1))
