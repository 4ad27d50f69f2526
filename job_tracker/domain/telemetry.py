"""What training tells of itself besides its exit code: numbers over time, and what it has made."""

from dataclasses import dataclass
from datetime import datetime

from job_tracker.domain.job import Progress

MOST_SERIES = 256
"""Metrics of one job, by name; later names are left out."""
MOST_POINTS = 1024
"""Points of one series: when there are as many, every second one is dropped, and of the next as well."""
MOST_ARTIFACTS = 256


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A finite number that a metric had at a step, and when."""

    name: str
    step: int
    at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A point of a series, with the attempt that it is of."""

    attempt: int
    step: int
    at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A metric over the whole job, oldest first, at the resolution that is left."""

    name: str
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Something that training has made: a name that is its own within the job, and where it is."""

    name: str
    uri: str
    kind: str = ""
    """What it is, in the words of who made it: model, manifest, metrics, …"""
    size: int = 0
    """In bytes; 0 if it was not told."""
    sha256: str = ""
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """What one attempt has told since its last report, as the store takes it in."""

    job_id: int
    attempt: int
    at: datetime
    """When it arrived here."""
    progress: Progress | None = None
    points: tuple[MetricPoint, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
