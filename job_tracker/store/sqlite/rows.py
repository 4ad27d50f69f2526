"""Jobs as rows. Each value by which jobs are queried has its own column.

The other columns have single values or JSON.
"""

import sqlite3
from datetime import UTC, datetime
from typing import Any

from job_tracker.domain.job import Job, JobState
from job_tracker.store import encoding, specs

NO_TAGS = "[]"


def job_of(row: sqlite3.Row) -> Job:
    """Return the job in a row."""
    return Job(
        id=row["id"],
        version=row["version"],
        spec=specs.loaded(row["spec"]),
        state=JobState(row["state"]),
        submitted_at=moment(row["submitted_at"]),
        attempt=row["attempt"],
        started_at=moment(row["started_at"]) if row["started_at"] else None,
        finished_at=moment(row["finished_at"]) if row["finished_at"] else None,
        ranks=encoding.RANKS.validate_json(row["ranks"]),
        ending=encoding.ENDING.validate_json(row["ending"]) if row["ending"] else None,
        progress=encoding.PROGRESS.validate_json(row["progress"]) if row["progress"] else None,
        program=row["program"],
        due_at=moment(row["due_at"]) if row["due_at"] else None,
        history=encoding.MOVES.validate_json(row["moves"]),
        tags=encoding.TAGS.validate_json(row["tags"]) if row["tags"] != NO_TAGS else (),
        note=row["note"],
        allocation=encoding.ALLOCATION.validate_json(row["allocation"]) if row["allocation"] else None,
    )


def size_of(row: sqlite3.Row) -> int:
    """Return the total length of the strings in a row, in characters."""
    return sum(len(value) for value in row if isinstance(value, str))


def fixed_columns(job: Job) -> dict[str, Any]:
    """Return the columns that a new job has besides those of `changing_columns`, with their values."""
    return {
        "version": job.version,
        "name": job.spec.name,
        "algorithm": job.spec.algorithm,
        "queue": job.spec.queue,
        "project": job.spec.project,
        "submitted_by": job.spec.submitted_by,
        "submitted_at": job.submitted_at.timestamp(),
        "spec": specs.dumped(job.spec),
        "tags": encoding.text_of(encoding.TAGS, job.tags) if job.tags else NO_TAGS,
    }


def changing_columns(job: Job) -> dict[str, Any]:
    """Return the columns that an update may change, with their values."""
    return {
        "state": job.state.value,
        "attempt": job.attempt,
        "instances": job.instances,
        "allocation": encoding.text_of(encoding.ALLOCATION, job.allocation) if job.allocation else None,
        "started_at": job.started_at.timestamp() if job.started_at else None,
        "finished_at": job.finished_at.timestamp() if job.finished_at else None,
        "ranks": encoding.text_of(encoding.RANKS, job.ranks),
        "ending": encoding.text_of(encoding.ENDING, job.ending) if job.ending else None,
        "program": job.program,
        "due_at": job.due_at.timestamp() if job.due_at else None,
        "moves": encoding.text_of(encoding.MOVES, job.history),
    }


def moment(timestamp: float) -> datetime:
    """Return the time that a column has as seconds since 1970."""
    return datetime.fromtimestamp(timestamp, UTC)
