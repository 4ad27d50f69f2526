"""Reads the value of a sweep's objective from a job."""

import json
import math
from statistics import median
from typing import Any

from training_service.client.curves import Curve, curves_by_metric
from training_service.client.errors import NotFound
from training_service.client.sweeps.settings import Objective
from training_service.client.sync import TrainingClient

MANIFEST = "manifest.json"


class NoValue(Exception):
    """The job has no finite value of the objective. The message says why."""


class UnknownMetric(NoValue):
    """The job has reported other metrics, but never the objective's metric, whose name may be wrong."""


def value_of(client: TrainingClient, job: int, objective: Objective) -> float:
    """Return the value of the objective for a job that has ended. Raises NoValue if the job has none."""
    if objective.value == "manifest":
        return _in_manifest(_manifest(client, job), objective.metric)
    curve = curve_of(client, job, objective.metric)
    if curve is None:
        reported = sorted(series.name for series in client.metrics(job))
        problem = UnknownMetric if reported else NoValue
        raise problem(
            f"it reported no metric {objective.metric!r}; it reported: {', '.join(reported) or 'none'}"
        )
    if objective.value == "last":
        if not math.isfinite(curve.values[-1]):
            raise NoValue(f"its last {objective.metric!r} is {curve.values[-1]}, not a finite number")
        return curve.values[-1]
    finite = [value for value in curve.values if math.isfinite(value)]
    if not finite:
        raise NoValue(f"no {objective.metric!r} that it reported is a finite number")
    if objective.value == "median":
        return median(finite)
    return max(finite) if objective.direction == "maximize" else min(finite)


def beside_of(client: TrainingClient, job: int, objective: Objective) -> dict[str, float]:
    """Return the median of each metric in `beside`, and the last value of each metric in `last_beside`.

    Metrics for which the job has reported no finite value are left out.
    """
    names = (*objective.beside, *objective.last_beside)
    curves = curves_by_metric({"": client.metrics(job, names)}) if names else {}
    finite = {
        name: [value for curve in found for value in curve.values if math.isfinite(value)]
        for name, found in curves.items()
    }
    return {
        name: values[-1] if name in objective.last_beside else median(values)
        for name, values in finite.items()
        if values
    }


def curve_of(client: TrainingClient, job: int, metric: str) -> Curve | None:
    """Return the curve of a job's metric; None if the metric has no points."""
    curves = curves_by_metric({"": client.metrics(job, [metric])}).get(metric)
    return curves[0] if curves and curves[0].values else None


def _manifest(client: TrainingClient, job: int) -> Any:
    try:
        return json.loads(b"".join(client.fetch(job, MANIFEST)))
    except NotFound as error:
        raise NoValue(f"its model has no {MANIFEST}") from error
    except ValueError as error:
        raise NoValue(f"the {MANIFEST} of its model is not JSON") from error


def _in_manifest(manifest: Any, path: str) -> float:
    found = manifest
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            there = f"the keys {', '.join(sorted(found))}" if isinstance(found, dict) else "no table"
            raise NoValue(f"the {MANIFEST} of its model has no {path!r}: in place of {key!r}, it has {there}")
        found = found[key]
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise NoValue(f"{path!r} in the {MANIFEST} of its model is {found!r}, not a finite number")
    return float(found)
