"""The job store in one SQLite file (WAL), which one service uses exclusively."""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.audit import AuditEvent, target_of_job
from job_tracker.domain.errors import (
    IllegalMove,
    JobNotFound,
    StaleJob,
    StoreUnavailable,
)
from job_tracker.domain.job import TRANSITIONS, Job, JobState, new_job
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.remains import Remains
from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricSeries
from job_tracker.store import encoding
from job_tracker.store.jobs import LARGEST_LIST, Changes, JobFilter, Listing, RequestKey
from job_tracker.store.lease import Term
from job_tracker.store.sqlite import files, lists, reports, rows, schema
from job_tracker.store.sqlite.access import SqliteAccess
from job_tracker.store.sqlite.audit import AuditRows, SqliteAudit
from job_tracker.store.sqlite.declarations import SqliteDeclarations
from job_tracker.store.sqlite.lease import Lease
from job_tracker.store.sqlite.losses import LossWatch
from job_tracker.store.sqlite.mark import Marker
from job_tracker.store.sqlite.queue import SqliteQueue
from job_tracker.store.sqlite.report_keys import SqliteReportKeys
from job_tracker.store.sqlite.scheduling import SqliteScheduling
from job_tracker.store.sqlite.submissions import Submission, find_submitted
from job_tracker.store.sqlite.writer import GroupCommitter

T = TypeVar("T")

_MAX_KNOWN, _LARGEST_KNOWN = 4096, 8192  # the most cached jobs; the most characters of a cached job's spec


class SqliteStore(
    SqliteAccess, SqliteDeclarations, SqliteReportKeys, SqliteScheduling, SqliteAudit, SqliteQueue
):
    """A store in a local file. Open it with `SqliteStore.open`, in the event loop that uses it.

    Single rows and some short lists are read on the event loop: in WAL mode a reader never waits, and such a
    read is faster than passing it to a thread. Other lists are read in a thread.
    """

    def __init__(self, path: Path, lock: int, connection: sqlite3.Connection, marker: Marker) -> None:
        self._lock = lock
        self._marker = marker
        self._reader = schema.connect(path, read_only=True)
        # A small cache: lists read each row once.
        self._lister = schema.connect(path, read_only=True, cache_kib=1024)
        # There is one thread, so that two lists never use the connection at the same time. Unlike a lock, the
        # thread stays in use until the list is read, even if the caller was cancelled.
        self._lists = ThreadPoolExecutor(1, "sqlite-lists")
        self._connection = connection
        self._watch = LossWatch(path, connection)
        self._audit = AuditRows(connection)
        self._writer = GroupCommitter(connection, self._watch.check, self._audit)
        self._lease = Lease()
        SqliteAccess.__init__(self, self._writer, self._audit, self._one, self._read)
        SqliteDeclarations.__init__(self, self._writer, self._audit, self._one, self._read)
        SqliteReportKeys.__init__(self, self._writer, self._audit, self._read, self._access_changed)
        SqliteScheduling.__init__(self, self._writer, self._lease, self._one, self._read)
        SqliteAudit.__init__(self, self._writer, self._audit, self._lease, self._read)
        SqliteQueue.__init__(self, partial(self._all, self._reader), self._read)
        self._feed: Broadcast[int, JobState] = Broadcast()
        self._resigned: Broadcast[int, None] = Broadcast()
        # A cache of jobs. `_changed` removes each job that this process has written. A refused `update`
        # removes its job, since another program may have changed the row.
        self._known: dict[int, Job] = {}

    @classmethod
    async def open(cls, path: Path, used: Sequence[Path] = ()) -> "SqliteStore":
        """Open or create the file.

        Raises StoreRefused if the file is in use, is damaged, belongs to another program, or was written by a
        newer version. `used` are folders with files of jobs. If at least one such folder is given, a file
        that never had a job is refused, too.
        """
        lock = files.lock(path)
        try:
            connection, marker = await asyncio.to_thread(schema.open_file, path, used)
            return cls(path, lock, connection, marker)
        except BaseException:
            os.close(lock)
            raise

    async def submit(
        self,
        spec: JobSpec,
        at: datetime,
        request_key: RequestKey | None,
        max_queued: int,
        max_queued_in_project: int | None = None,
        tags: tuple[str, ...] = (),
        *,
        max_queued_of_caller: int | None = None,
        max_queued_in_queue: int | None = None,
        project_must_be_stored: bool = False,
        event: AuditEvent | None = None,
    ) -> Job:
        submission = Submission(
            *(new_job(0, spec, at, tags), request_key, max_queued),
            in_project=max_queued_in_project,
            of_caller=max_queued_of_caller,
            in_queue=max_queued_in_queue,
            project_must_be_stored=project_must_be_stored,
        )

        def insert(db: sqlite3.Connection) -> tuple[Job, bool]:
            if request_key is not None and (known := find_submitted(db, request_key)):
                return known, False
            self._marker.reserve(db)
            job = submission.insert(db)
            self._audit.add(event, target_of_job(job.id))
            return job, True

        def committed(outcome: tuple[Job, bool]) -> None:
            job, is_new = outcome
            if is_new:  # a new job is the last in its queue, so no other position changes
                self._know(job, submission.spec_size)  # the tracker reads it at once
                self._feed.publish(job.id, job.state)

        job, _ = await self._writer.run(insert, committed)
        return job

    async def find_submitted(self, request_key: RequestKey) -> Job | None:
        try:
            return find_submitted(self._reader, request_key)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the job store cannot read: {error}") from error

    async def get(self, job_id: int) -> Job:
        known = self._known.get(job_id)
        if known is not None:
            return known
        row = self._one("SELECT * FROM jobs WHERE id = ?", job_id)
        if row is None:
            raise JobNotFound(job_id)
        job = rows.job_of(row)
        self._know(job, len(row["spec"]))
        return job

    def _know(self, job: Job, spec_size: int) -> None:
        """Keep a job in the cache, and remove the oldest entry if the cache is full."""
        if spec_size > _LARGEST_KNOWN:
            return
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[job.id] = job

    async def update(
        self,
        job: Job,
        *,
        term: Term | None = None,
        by: Changes | None = None,
        event: AuditEvent | None = None,
    ) -> Job:
        columns = rows.changing_columns(job)
        assignments = ", ".join(f"{name} = :{name}" for name in columns)
        values: dict[str, Any] = {**columns, "id": job.id, "version": job.version}

        def write(db: sqlite3.Connection) -> None:
            self._lease.check(term)
            row = db.execute("SELECT version, state, attempt FROM jobs WHERE id = ?", (job.id,)).fetchone()
            if row is None:
                raise JobNotFound(job.id)
            if row["version"] != job.version:
                raise StaleJob(job.id, job.version)
            before = JobState(row["state"])
            if before.is_terminal or (job.state is not before and job.state not in TRANSITIONS[before]):
                raise IllegalMove(job.id, before, job.state)
            if row["attempt"] != job.attempt:
                db.execute("UPDATE jobs SET progress = NULL WHERE id = ?", (job.id,))
            # The text contains only constant column names; every value is bound.
            db.execute(f"UPDATE jobs SET version = version + 1, {assignments} WHERE id = :id", values)  # noqa: S608
            self._audit.add(event)

        try:
            await self._writer.run(write, lambda _: self._changed(job.id, job.state, by))
        except (JobNotFound, StaleJob, IllegalMove):
            # The cache may be wrong: an operator may have changed the row with another program.
            self._known.pop(job.id, None)
            raise
        return replace(job, version=job.version + 1)

    async def annotate(
        self, job: Job, tags: tuple[str, ...], note: str, *, event: AuditEvent | None = None
    ) -> Job:
        before = encoding.text_of(encoding.TAGS, job.tags), job.note
        after = encoding.text_of(encoding.TAGS, tags), note

        def write(db: sqlite3.Connection) -> JobState:
            row = db.execute("SELECT tags, note, state FROM jobs WHERE id = ?", (job.id,)).fetchone()
            if row is None:
                raise JobNotFound(job.id)
            if (row["tags"], row["note"]) != before:
                raise StaleJob(job.id, job.version)
            db.execute("UPDATE jobs SET tags = ?, note = ? WHERE id = ?", (*after, job.id))
            self._audit.add(event)
            return JobState(row["state"])

        await self._writer.run(write, lambda state: self._changed(job.id, state))
        return await self.get(job.id)

    async def record_reports(self, given: Sequence[AttemptReport]) -> Sequence[bool]:

        def write(db: sqlite3.Connection) -> list[JobState | None]:
            return [reports.record(db, report) for report in given]

        def committed(states: list[JobState | None]) -> None:
            for report, state in zip(given, states, strict=True):
                if state is not None:
                    self._changed(report.job_id, state)

        return [state is not None for state in await self._writer.run(write, committed)]

    async def metric_names(self, job_id: int) -> Sequence[str]:
        return await self._read(reports.names_of, reports.NAMES, job_id)

    async def metrics(self, job_id: int, names: Collection[str] | None = None) -> Sequence[MetricSeries]:
        wanted = None if names is None else json.dumps(list(names))
        return await self._read(reports.series_of, reports.SERIES, job_id, wanted)

    async def artifacts(self, job_id: int) -> Sequence[Artifact]:
        return await self._read(reports.artifacts_of, reports.ARTIFACTS, job_id)

    async def store_id(self) -> str:
        row = self._one("SELECT id FROM identity")
        assert row is not None
        return str(row["id"])

    async def skip_ids(self, *, beyond: int, number: int) -> int:

        def write(db: sqlite3.Connection) -> int:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
            last = max(row["seq"] if row else 0, beyond) + number
            # SQLite creates this row with the first job, and reads it before each further job
            # (sqlite.org/autoinc.html).
            db.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs'")
            db.execute("INSERT INTO sqlite_sequence VALUES ('jobs', ?)", (last,))
            self._marker.ids_were_skipped()
            return last

        return await self._writer.run(write)

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        return await self._in_thread(partial(self._read_page, where, limit, before))

    async def finished_before(self, moment: datetime, limit: int) -> Sequence[Job]:
        query = "SELECT * FROM jobs WHERE finished_at < ? ORDER BY finished_at LIMIT ?"
        return await self._list(query, moment.timestamp(), limit)

    async def delete(
        self, job_ids: Sequence[int], *, term: Term | None = None, event: AuditEvent | None = None
    ) -> None:

        def write(db: sqlite3.Connection) -> None:
            self._lease.check(term)
            deleted = db.executemany(
                "DELETE FROM jobs WHERE id = ? AND finished_at IS NOT NULL", [(job_id,) for job_id in job_ids]
            ).rowcount
            if deleted:
                self._audit.add(event)

        def committed(_: None) -> None:
            for job_id in job_ids:
                self._known.pop(job_id, None)

        await self._writer.run(write, committed)

    async def remains(self, limit: int) -> Sequence[Remains]:
        query = "SELECT * FROM remains ORDER BY job_id LIMIT ?"
        return [Remains(*row) for row in self._all(self._reader, query, limit)]

    async def forget_remains(self, job_ids: Sequence[int], *, term: Term | None = None) -> None:

        def write(db: sqlite3.Connection) -> None:
            self._lease.check(term)
            db.executemany("DELETE FROM remains WHERE job_id = ?", [(job_id,) for job_id in job_ids])

        await self._writer.run(write)

    def changes(self, job_id: int | None = None) -> AbstractContextManager[Changes]:
        return self._feed.subscribe(job_id)

    async def lead(
        self,
        holder: str,  # noqa: ARG002  # there is no other replica to show it to
        lifetime: timedelta,
        term: Term | None = None,
    ) -> Term | None:
        won: Term | None = None

        def lead(_: sqlite3.Connection) -> Term | None:
            nonlocal won  # the writer repeats this operation if another operation of the batch fails
            won = self._lease.lead(lifetime, won or term)
            return won

        return await self._writer.run(lead)

    async def resign(self, term: Term) -> None:
        if await self._writer.run(lambda _: self._lease.resign(term)):
            self._resigned.publish(term.number, None)

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        return self._resigned.subscribe()

    async def close(self) -> None:
        await self._writer.close()
        await asyncio.to_thread(self._lists.shutdown)
        if self._watch.is_whole:
            with suppress(OSError, sqlite3.Error):  # after an error, the next start finds the mark of a kill
                self._marker.settle(self._connection)
        # The connection that is closed last makes a checkpoint, unless it is read-only. After a truncation, a
        # checkpoint would do damage, so a reader is closed last.
        order = (self._reader, self._lister, self._connection)
        for connection in reversed(order) if self._watch.is_cut else order:
            connection.close()
        self._watch.close()
        os.close(self._lock)

    def _changed(self, job_id: int, state: JobState, by: Changes | None = None) -> None:
        self._known.pop(job_id, None)
        self._forget_positions()
        self._feed.publish(job_id, state, by=by)

    def _one(self, query: str, *values: Any) -> sqlite3.Row | None:
        return next(iter(self._all(self._reader, query, *values)), None)

    async def _list(self, query: str, *values: Any) -> list[Job]:
        return await self._read(lambda found: [rows.job_of(row) for row in found], query, *values)

    async def _read(self, parse: Callable[[list[sqlite3.Row]], list[T]], query: str, *values: Any) -> list[T]:
        return await self._in_thread(lambda: parse(self._all(self._lister, query, *values)))

    async def _in_thread(self, read: Callable[[], T]) -> T:
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._lists, read)
        except RuntimeError as error:
            raise StoreUnavailable("the store is closed") from error
        return await reading

    def _read_page(self, where: JobFilter, limit: int, before: int | None) -> Listing:
        """Return a page of the jobs that match the filter.

        Rows are read one by one, so that few are in memory.
        """
        jobs: list[Job] = []
        size = 0
        read = partial(self._all, self._lister)
        for job_id in lists.newest(read, where, limit + 1, before):
            if len(jobs) == limit or size >= LARGEST_LIST:
                return Listing(jobs, has_more=True)
            for row in self._all(self._lister, "SELECT * FROM jobs WHERE id = ?", job_id):
                jobs.append(rows.job_of(row))
                size += rows.size_of(row)
        return Listing(jobs, has_more=False)

    @staticmethod
    def _all(connection: sqlite3.Connection, query: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the job store cannot read: {error}") from error
