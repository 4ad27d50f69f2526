"""Jobs as hashes.

Fields with a single value are plain text; fields with several values are JSON. '' stands for None.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from job_tracker.domain.job import Job, JobState
from job_tracker.domain.remains import Remains
from job_tracker.domain.telemetry import AttemptReport, MetricSeries, SeriesPoint
from job_tracker.store import encoding, specs
from job_tracker.store.jobs import CLOCK_SLACK, JobFilter, moved


def job_of(pairs: Sequence[bytes]) -> Job | None:
    """Return the job in the answer of HGETALL (alternating names and values); None if the answer is empty."""
    if not pairs:
        return None
    row = {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    submitted_at = moment(row["submitted_at"])
    assert submitted_at is not None
    return Job(
        id=int(row["id"]),
        version=int(row["version"]),
        spec=specs.loaded(row["spec"]),
        state=JobState(row["state"].decode()),
        submitted_at=submitted_at,
        attempt=int(row["attempt"]),
        started_at=moment(row["started_at"]),
        finished_at=moment(row["finished_at"]),
        ranks=encoding.RANKS.validate_json(row["ranks"]),
        ending=encoding.ENDING.validate_json(row["ending"]) if row["ending"] else None,
        progress=encoding.PROGRESS.validate_json(row["progress"]) if row["progress"] else None,
        # Jobs that were written with schema 1 lack these fields.
        program=row.get("program", b"").decode(),
        due_at=moment(row.get("due_at", b"")),
        history=encoding.MOVES.validate_json(row.get("moves", b"[]")),
        # Jobs that never had such values lack these fields.
        tags=encoding.TAGS.validate_json(row.get("tags", b"[]")),
        note=row.get("note", b"").decode(),
        allocation=encoding.ALLOCATION.validate_json(row["allocation"]) if row.get("allocation") else None,
    )


def remains_of(text: bytes) -> Remains:
    """Parse the remains of a deleted job, as delete.lua has written them."""
    job_id, algorithm, home, attempts = text.decode().split("\0")
    return Remains(int(job_id), algorithm, home, int(attempts))


def time_fields(where: JobFilter) -> Iterator[str]:
    """Yield the arguments of list.lua for the times of a filter; "" for a time that is None.

    There are four arguments: `since` minus CLOCK_SLACK, `since`, `until` plus CLOCK_SLACK, and `until`.
    """
    for at, slack in ((where.since, -CLOCK_SLACK), (where.until, CLOCK_SLACK)):
        for each in (moved(at, slack), at):
            # The first 26 characters are the time without the time zone.
            yield each.astimezone(UTC).isoformat(timespec="microseconds")[:26] if each else ""


def changing_fields(job: Job) -> tuple[str, ...]:
    """Return the fields, besides the state, that an update may change, in the order of update.lua."""
    return (
        str(job.attempt),
        text_of(job.started_at),
        text_of(job.finished_at),
        # The job's score in the sorted set `finished`. The script uses it only if the job has ended.
        repr(job.finished_at.timestamp()) if job.finished_at else "+inf",
        encoding.text_of(encoding.RANKS, job.ranks),
        encoding.text_of(encoding.ENDING, job.ending) if job.ending else "",
        *due_fields(job),
        encoding.text_of(encoding.MOVES, job.history),
        job.program,
        str(job.instances),
        encoding.text_of(encoding.ALLOCATION, job.allocation) if job.allocation else "",
    )


def due_fields(job: Job) -> tuple[str, str]:
    """Return the time at which the job is due, as text and as a score; both are empty if it is never due."""
    return text_of(job.due_at), repr(job.due_at.timestamp()) if job.due_at else ""


def report_fields(report: AttemptReport) -> tuple[str | int, ...]:
    """Return the points and the artifacts of a report as arguments of report.lua."""
    points: Iterator[tuple[str | int, ...]] = (
        (p.name, p.step, repr(p.at.timestamp()), repr(p.value)) for p in report.points
    )
    made = (replace(artifact, attempt=report.attempt) for artifact in report.artifacts)
    artifacts = ((artifact.name, encoding.text_of(encoding.ARTIFACT, artifact)) for artifact in made)
    return (len(report.points), *chain.from_iterable(points), *chain.from_iterable(artifacts))


def series_of(name: bytes, points: Sequence[bytes]) -> MetricSeries:
    """Return the series of stored points. Each point is the text ATTEMPT STEP AT VALUE."""
    fields = (point.decode().split(" ") for point in points)
    return MetricSeries(
        name.decode(),
        tuple(
            SeriesPoint(int(attempt), int(step), datetime.fromtimestamp(float(at), UTC), float(value))
            for attempt, step, at, value in fields
        ),
    )


def text_of(at: datetime | None) -> str:
    """Return a time in ISO 8601, exact to the microsecond; "" for None."""
    return at.isoformat() if at else ""


def moment(text: bytes) -> datetime | None:
    """Parse a time that `text_of` has written; None for an empty string."""
    return datetime.fromisoformat(text.decode()) if text else None
