"""Reports of training: metrics over time, and artifacts."""

from dataclasses import dataclass
from datetime import datetime

from job_tracker.domain.progress import Progress

MAX_SERIES = 256
"""The largest number of metrics of one job. Values of further metrics are ignored."""
MAX_POINTS = 1024
"""The largest number of points of one series.

Whenever a series is full, every second point in it is dropped. After that, only half as many new points are
added as before.
"""
MAX_ARTIFACTS = 256


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The value of a metric at a step, and its time. The value may be NaN or infinite."""

    name: str
    step: int
    at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A point of a series, with its attempt."""

    attempt: int
    step: int
    at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A metric over the whole job, oldest point first. In a long series, points are left out (MAX_POINTS)."""

    name: str
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A product of training: its name, unique in the job, and its URI."""

    name: str
    uri: str
    kind: str = ""
    """The kind that training reported: model, manifest, metrics, …"""
    size: int = 0
    """In bytes; 0 if unknown."""
    sha256: str = ""
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """The reports of one attempt since the last write, for the store."""

    job_id: int
    attempt: int
    at: datetime
    """The time at which the latest of these reports arrived at the service."""
    progress: Progress | None = None
    points: tuple[MetricPoint, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
