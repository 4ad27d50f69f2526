"""Inserts submitted jobs, within the limits on the number of queued jobs."""

import sqlite3
from dataclasses import replace
from functools import cache

from job_tracker.domain.errors import QueueFull, RequestKeyConflict, UnknownProject
from job_tracker.domain.job import Job
from job_tracker.store.jobs import RequestKey
from job_tracker.store.sqlite import rows

_QUEUED = "SELECT jobs FROM tallies WHERE state = 'queued'"
_STORED = "SELECT 1 FROM projects WHERE name = ?"
_QUEUED_IN_PROJECT = "SELECT jobs FROM project_tallies WHERE project = ? AND state = 'queued'"
_QUEUED_OF_CALLER = "SELECT jobs FROM queued_of_callers WHERE caller = ?"
# This sum is cheap: it is needed only for queues with a limit on their queued jobs, and a queue has at most
# as many blocks as queued jobs.
_QUEUED_IN_QUEUE = "SELECT sum(jobs) FROM queue_blocks WHERE queue = ?"
_QUEUED_LESS, _QUEUED_LESS_IN_PROJECT, _QUEUED_LESS_OF_CALLER, _QUEUED_LESS_IN_QUEUE = (
    f"coalesce(({count}), 0) < ?"
    for count in (_QUEUED, _QUEUED_IN_PROJECT, _QUEUED_OF_CALLER, _QUEUED_IN_QUEUE)
)


class Submission:
    """A job to insert, and the limits on the number of queued jobs.

    The job's values are encoded once, at the creation of this object.
    """

    def __init__(
        self,
        job: Job,
        request_key: RequestKey | None,
        in_all: int,
        *,
        in_project: int | None,
        of_caller: int | None,
        in_queue: int | None,
        project_must_be_stored: bool,
    ) -> None:
        """The largest numbers of queued jobs are `in_all`, `in_project`, `of_caller` and `in_queue`.

        None: no limit.
        """
        self._job = job
        self._in_all, self._in_project, self._of_caller = in_all, in_project, of_caller
        self._project_must_be_stored = project_must_be_stored
        spec = job.spec
        values = {
            **rows.fixed_columns(job),
            **rows.changing_columns(job),
            "request_key": request_key.key if request_key else None,
            "request_digest": request_key.digest if request_key else None,
        }
        self.spec_size = len(values["spec"])
        """The number of characters of the spec as JSON."""
        conditions: list[tuple[str, tuple[str | int, ...]]] = [(_QUEUED_LESS, (in_all,))]
        if in_project is not None:
            conditions.append((_QUEUED_LESS_IN_PROJECT, (spec.project, in_project)))
        if of_caller is not None and spec.submitted_by:
            conditions.append((_QUEUED_LESS_OF_CALLER, (spec.submitted_by, of_caller)))
        if in_queue is not None:
            conditions.append((_QUEUED_LESS_IN_QUEUE, (spec.queue, in_queue)))
        if project_must_be_stored:
            conditions.append((f"EXISTS ({_STORED})", (spec.project,)))
        self._statement = _insertion(tuple(values), tuple(text for text, _ in conditions))
        self._arguments = (*values.values(), *(each for _, bound in conditions for each in bound))

    def insert(self, db: sqlite3.Connection) -> Job:
        """Insert the job, and return it with its id.

        Raises QueueFull if a limit is reached, and UnknownProject if the project must be stored but is not.
        """
        cursor = db.execute(self._statement, self._arguments)
        if not cursor.rowcount:
            raise self._refusal(db)
        assert cursor.lastrowid is not None
        return replace(self._job, id=cursor.lastrowid)

    def _refusal(self, db: sqlite3.Connection) -> Exception:
        spec = self._job.spec
        if self._project_must_be_stored and not db.execute(_STORED, (spec.project,)).fetchone():
            return UnknownProject(spec.project)
        [queued] = db.execute(_QUEUED).fetchone() or [0]
        if queued >= self._in_all:
            return QueueFull(queued)
        [queued] = db.execute(_QUEUED_IN_PROJECT, (spec.project,)).fetchone() or [0]
        if self._in_project is not None and queued >= self._in_project:
            return QueueFull(queued, spec.project)
        [queued] = db.execute(_QUEUED_OF_CALLER, (spec.submitted_by,)).fetchone() or [0]
        if self._of_caller is not None and spec.submitted_by and queued >= self._of_caller:
            return QueueFull(queued, caller=spec.submitted_by)
        [queued] = db.execute(_QUEUED_IN_QUEUE, (spec.queue,)).fetchone()
        return QueueFull(queued or 0, queue=spec.queue)


@cache
def _insertion(columns: tuple[str, ...], conditions: tuple[str, ...]) -> str:
    """Return the statement that inserts a job with these columns if the conditions hold.

    The statement checks the limits, too. A separate statement would cost more: during each statement, the
    event loop may have to wait for the GIL several times.
    """
    # The statement contains only constant text of this program; every value is bound.
    return (
        f"INSERT INTO jobs ({', '.join(columns)}) SELECT {', '.join('?' * len(columns))} "
        f"WHERE {' AND '.join(conditions)}"
    )


def find_submitted(db: sqlite3.Connection, request_key: RequestKey) -> Job | None:
    """Return the job that was submitted with this key; None if there is none.

    Raises RequestKeyConflict if the key was used for another request, which has another digest.
    """
    query = "SELECT * FROM jobs WHERE project = ? AND request_key = ?"
    row = db.execute(query, (request_key.project, request_key.key)).fetchone()
    if row is None:
        return None
    if row["request_digest"] != request_key.digest:
        raise RequestKeyConflict(request_key.key, row["id"])
    return rows.job_of(row)
