"""Reports, and the checks that make values from programs safe to store and to show."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from job_tracker.domain.progress import Nonfinite, Progress, Saved
from job_tracker.domain.telemetry import Artifact, MetricPoint

COUNTS = ("step", "total_steps", "epoch", "total_epochs")
MOST_METRICS = 64
"""The largest number of metrics in the progress."""
MOST_PROBLEMS = 10
_LONGEST_NAME, _LONGEST_URI = 128, 2048
_LARGEST_COUNT = 10**15
_LARGEST_VALUE = 1e300
_SMOOTHING = 0.3
_SHORTEST_MEASUREMENT = 0.5  # seconds
_DIGITS = frozenset("0123456789abcdef")
CHECKPOINT = "checkpoint"
"""The kind of an artifact that is a checkpoint of the job."""
_STEP_AT_END = re.compile(r"step-(\d{1,15})/?\Z")
"""The step of a checkpoint of trainer_kit, at the end of its location."""
_NONFINITE = frozenset(f"{sign}{word}" for sign in ("", "+", "-") for word in ("nan", "inf", "infinity"))
"""Lower-case words for numbers that JSON lacks, as Protocol Buffers, Python and C write them."""


@dataclass(frozen=True, slots=True)
class Report:
    """New counts by name (see COUNTS), values of metrics, and artifacts."""

    counts: Mapping[str, int] = field(default_factory=dict)
    points: Sequence[MetricPoint] = ()
    artifacts: Sequence[Artifact] = ()
    problems: Sequence[str] = ()
    """The reasons for dropped values; only the first MOST_PROBLEMS."""
    at: datetime | None = None
    """The time of a printed line. None means the time at which the report is added."""
    rank: int | None = None
    """The rank that reports, if it is known."""


class ReportReader:
    """Collects the values of a report. Invalid values are dropped, and the reasons are kept."""

    def __init__(self, at: datetime) -> None:
        """`at` is the time of values that have no time of their own."""
        self._at = at
        self._counts: dict[str, int] = {}
        self._points: list[MetricPoint] = []
        self._artifacts: list[Artifact] = []
        self._problems: list[str] = []

    def counts(self, values: Mapping[str, Any]) -> None:
        """Add the counts among `values`."""
        for name in COUNTS:
            value = values.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT:
                self._counts[name] = value
            elif value is not None:
                self._refuse(f"{name}: {value!r:.40} is not a whole number from 0 to {_LARGEST_COUNT}")

    def point(self, name: object, value: object, step: int, at: datetime | None = None) -> None:
        """Add the value of a metric.

        NaN and infinity are allowed, as numbers or as the words in _NONFINITE.
        """
        value = float(value) if isinstance(value, str) and value.lower() in _NONFINITE else value
        if not _is_name(name):
            self._refuse(f"metric {name!r:.40}: the name must have 1 to {_LONGEST_NAME} printable characters")
        elif not _is_number(value):
            self._refuse(f"metric {name}: {value!r:.40} is not allowed; it must be a number")
        elif not 0 <= step <= _LARGEST_COUNT:
            self._refuse(f"metric {name}: step {step} is not allowed; allowed: 0 to {_LARGEST_COUNT}")
        else:
            assert isinstance(name, str)
            self._points.append(MetricPoint(name, step, at or self._at, float(value)))  # type: ignore[arg-type]

    def artifact(self, values: Mapping[str, Any]) -> None:
        """Add an artifact: name, uri, and optionally kind, size and sha256."""
        name, uri, kind = values.get("name"), values.get("uri"), values.get("kind", "")
        size, digest = values.get("size", 0), values.get("sha256", "")
        if not (_is_name(name) and ".." not in str(name).split("/")):
            self._refuse(
                f"artifact {name!r:.40}: the name must have 1 to {_LONGEST_NAME} printable characters, and "
                "no part between slashes may be .."
            )
        elif not (isinstance(uri, str) and 0 < len(uri) <= _LONGEST_URI and uri.isprintable()):
            self._refuse(
                f"artifact {name}: uri {uri!r:.40} must have 1 to {_LONGEST_URI} printable characters"
            )
        elif not (kind == "" or _is_name(kind)):
            self._refuse(
                f"artifact {name}: kind {kind!r:.40} must have at most {_LONGEST_NAME} printable characters"
            )
        elif not (isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= 2**62):
            self._refuse(f"artifact {name}: size {size!r:.40} must be a number of bytes")
        elif not (digest == "" or (isinstance(digest, str) and len(digest) == 64 and set(digest) <= _DIGITS)):
            self._refuse(f"artifact {name}: sha256 {digest!r:.40} must have 64 lower-case hexadecimal digits")
        else:
            made = Artifact(name=str(name), uri=uri, kind=kind, size=size, sha256=digest, at=self._at)
            self._artifacts.append(made)

    def report(self) -> Report:
        """Return the report with the values that were added."""
        return Report(self._counts, tuple(self._points), tuple(self._artifacts), tuple(self._problems))

    def _refuse(self, problem: str) -> None:
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(problem)


def advanced(
    last: Progress, report: Report, at: datetime, forbids: Callable[[str], bool] = lambda _: False
) -> Progress:
    """Return the progress after a report.

    The report replaces only the values that it contains. `at` is the time when the report arrived. A report
    from a line of the log has a time of its own (`Report.at`), which is used instead: the service may read
    many lines at once. `forbids` returns whether an attempt fails if a metric of this name is not finite.
    """
    metrics = _newest(last.metrics, report.points)
    counts: dict[str, Any] = dict(report.counts)
    now = replace(last, **counts, metrics=metrics, reported_at=report.at or at)
    if now.first_step_at is None and now.step > 0:
        now = replace(now, first_step_at=now.reported_at)
    now = _with_saves(now, report.artifacts)
    return _measured(last, replace(now, nonfinite=_first_nonfinite(last.nonfinite, report, forbids)))


def _with_saves(now: Progress, artifacts: Iterable[Artifact]) -> Progress:
    """Return the progress `now` with the checkpoints among the artifacts.

    The step of a checkpoint is at the end of its location. If the location has no step, `now.step` is used.
    """
    for artifact in artifacts:
        if artifact.kind == CHECKPOINT:
            found = _STEP_AT_END.search(artifact.uri)
            at = artifact.at or now.reported_at
            assert at is not None
            saved = Saved(int(found[1]) if found else now.step, at)
            now = now if saved == now.saved else replace(now, saved=saved, saves=now.saves.after(saved))
    return now


def _newest(known: Mapping[str, float], points: Iterable[MetricPoint]) -> dict[str, float]:
    metrics = dict(known)
    for point in points:
        if point.name in metrics or len(metrics) < MOST_METRICS:
            metrics[point.name] = point.value
    return metrics


def _first_nonfinite(
    known: tuple[Nonfinite, ...], report: Report, forbids: Callable[[str], bool]
) -> tuple[Nonfinite, ...]:
    """Return `known`, with the first non-finite value of each further metric in the report.

    Beyond MOST_METRICS values, at most one more is added: the first value of a metric for which `forbids` is
    true, if no such metric is known yet.
    """
    names = {each.metric for each in known}
    for point in report.points:
        if math.isfinite(point.value) or point.name in names:
            continue
        if len(names) < MOST_METRICS or (forbids(point.name) and not any(map(forbids, names))):
            names.add(point.name)
            known += (Nonfinite(point.name, point.value, point.step, point.at, report.rank),)
    return known


def _measured(last: Progress, now: Progress) -> Progress:
    """Return `now` with its speed: smoothed steps per second since the last measurement.

    Without a new step, the speed stays the same. If steps are repeated, the measurement begins again. There
    is at least half a second between two measurements, since lines that a program flushes at once have
    nearly the same time.
    """
    assert now.reported_at is not None
    here = replace(now, measured_at=now.reported_at, measured_step=now.step)
    if last.measured_at is None or now.step < last.step:
        return replace(here, speed=0.0)
    if now.step == last.step:
        return now
    seconds = (now.reported_at - last.measured_at).total_seconds()
    if seconds < 0:  # the clock was set back
        return here
    if seconds < _SHORTEST_MEASUREMENT:
        return now
    newest = (now.step - last.measured_step) / seconds
    return replace(here, speed=_SMOOTHING * newest + (1 - _SMOOTHING) * last.speed if last.speed else newest)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (abs(value) <= _LARGEST_VALUE or (isinstance(value, float) and not math.isfinite(value)))
    )
