"""Reports in tables: the latest progress in the row of its job, metrics as thinned series, artifacts by
name.
"""

import math
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from job_tracker.domain.job import JobState
from job_tracker.domain.telemetry import (
    MAX_ARTIFACTS,
    MAX_POINTS,
    MAX_SERIES,
    Artifact,
    AttemptReport,
    MetricPoint,
    MetricSeries,
    SeriesPoint,
)
from job_tracker.store import encoding
from job_tracker.store.sqlite import rows

_NAN = -sys.float_info.max
"""Stands for NaN in the table of points, since SQLite has no NaN.

If training itself reports this value, it is read as NaN, too.
"""


def record(db: sqlite3.Connection, report: AttemptReport) -> JobState | None:
    """Store a report. Return the job's state; None if the report is refused."""
    job = db.execute(
        "SELECT state FROM jobs WHERE id = ? AND attempt = ?"
        " AND (state IN ('launching', 'running') OR finished_at >= ?)",
        (report.job_id, report.attempt, report.at.timestamp()),
    ).fetchone()
    if job is None:
        return None
    if report.progress is not None:
        encoded = encoding.text_of(encoding.PROGRESS, report.progress)
        db.execute("UPDATE jobs SET progress = ? WHERE id = ?", (encoded, report.job_id))
    _add_points(db, report)
    for artifact in report.artifacts:
        _keep_artifact(db, report.job_id, replace(artifact, attempt=report.attempt))
    return JobState(job["state"])


def series_of(found: Iterable[sqlite3.Row]) -> list[MetricSeries]:
    """Return the series in rows of the query SERIES, in the order of the rows."""
    return [
        MetricSeries(name, tuple(map(_point, points))) for name, points in groupby(found, key=itemgetter(0))
    ]


def names_of(found: Iterable[sqlite3.Row]) -> list[str]:
    """Return the names in rows of the query NAMES."""
    return [str(row["name"]) for row in found]


SERIES = (
    "SELECT name, attempt, step, at, value FROM metric_series JOIN metric_points ON series = id"
    " WHERE job_id = ?1 AND (?2 IS NULL OR name IN (SELECT value FROM json_each(?2))) ORDER BY name, number"
)
NAMES = "SELECT name FROM metric_series WHERE job_id = ? ORDER BY name"
ARTIFACTS = "SELECT content FROM artifacts WHERE job_id = ? ORDER BY name"


def artifacts_of(found: Iterable[sqlite3.Row]) -> list[Artifact]:
    """Return the artifacts in rows of the query ARTIFACTS."""
    return [encoding.ARTIFACT.validate_json(row["content"]) for row in found]


def _point(row: sqlite3.Row) -> SeriesPoint:
    _, attempt, step, at, value = row  # access by column names takes longer, and there may be many points
    return SeriesPoint(attempt, step, rows.moment(at), _read(value))


def _written(value: float) -> float:
    return _NAN if math.isnan(value) else value


def _read(value: float) -> float:
    return math.nan if value == _NAN else value


def _add_points(db: sqlite3.Connection, report: AttemptReport) -> None:
    by_name: dict[str, list[MetricPoint]] = {}
    for point in report.points:
        by_name.setdefault(point.name, []).append(point)
    for name, points in by_name.items():
        _add_to_series(db, report.job_id, report.attempt, name, points)


def _add_to_series(
    db: sqlite3.Connection, job_id: int, attempt: int, name: str, points: Sequence[MetricPoint]
) -> None:
    query = "SELECT id, seen, stride FROM metric_series WHERE job_id = ? AND name = ?"
    known = db.execute(query, (job_id, name)).fetchone()
    if known is None:
        if _count(db, "metric_series", job_id) >= MAX_SERIES:
            return
        insert = "INSERT INTO metric_series (job_id, name, seen, stride) VALUES (?, ?, 0, 1) RETURNING *"
        known = db.execute(insert, (job_id, name)).fetchone()
    series, seen, stride = known["id"], known["seen"], known["stride"]
    for number, point in enumerate(points, start=seen):
        if number % stride:
            continue
        if number // stride >= MAX_POINTS:
            stride *= 2
            db.execute("DELETE FROM metric_points WHERE series = ? AND number % ?", (series, stride))
            if number % stride:
                continue
        row = (series, number, attempt, point.step, point.at.timestamp(), _written(point.value))
        db.execute("INSERT INTO metric_points VALUES (?, ?, ?, ?, ?, ?)", row)
    values = (seen + len(points), stride, series)
    db.execute("UPDATE metric_series SET seen = ?, stride = ? WHERE id = ?", values)


def _keep_artifact(db: sqlite3.Connection, job_id: int, artifact: Artifact) -> None:
    known = db.execute("SELECT 1 FROM artifacts WHERE job_id = ? AND name = ?", (job_id, artifact.name))
    if known.fetchone() is None and _count(db, "artifacts", job_id) >= MAX_ARTIFACTS:
        return
    content = encoding.text_of(encoding.ARTIFACT, artifact)
    db.execute("INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?)", (job_id, artifact.name, content))


def _count(db: sqlite3.Connection, table: str, job_id: int) -> int:
    # The table's name is a constant of this file.
    return int(db.execute(f"SELECT count(*) FROM {table} WHERE job_id = ?", (job_id,)).fetchone()[0])  # noqa: S608
