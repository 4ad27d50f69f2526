"""A store on a Redis server, which any number of replicas may share."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.errors import (
    IllegalMove,
    JobNotFound,
    LeadershipLost,
    QueueFull,
    RequestKeyConflict,
    StaleJob,
    StoreRefused,
    StoreUnavailable,
    UnknownProject,
)
from job_tracker.domain.job import TRANSITIONS, Job, JobState, new_job
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.remains import Remains
from job_tracker.domain.telemetry import (
    MAX_ARTIFACTS,
    MAX_POINTS,
    MAX_SERIES,
    Artifact,
    AttemptReport,
    MetricSeries,
)
from job_tracker.store import encoding, specs
from job_tracker.store.jobs import LARGEST_LIST, Changes, JobFilter, Listing, RequestKey
from job_tracker.store.lease import Term
from job_tracker.store.queue import Tally
from job_tracker.store.redis import rows, scripts
from job_tracker.store.redis.access import RedisAccess
from job_tracker.store.redis.audit import RedisAudit, argument_of
from job_tracker.store.redis.changes import ChangeFeed
from job_tracker.store.redis.checks import open_checked
from job_tracker.store.redis.connection import Address, Connection, explain
from job_tracker.store.redis.declarations import RedisDeclarations
from job_tracker.store.redis.report_keys import RedisReportKeys
from job_tracker.store.redis.scheduling import RedisScheduling
from job_tracker.store.redis.scripts import Script

_DELETED_AT_ONCE = 100
_READ_AT_ONCE = 1000

# For each state that an update may write: the allowed previous states of the job. These are the states from
# which TRANSITIONS leads to the written state, and the written state itself unless it is terminal.
_SOURCES = {
    target: "".join(
        f",{source}"
        for source in JobState
        if target in TRANSITIONS[source] or (source is target and not source.is_terminal)
    )
    + ","
    for target in JobState
}


class RedisStore(RedisAccess, RedisDeclarations, RedisReportKeys, RedisScheduling, RedisAudit):
    """A store on a Redis server.

    Every script is atomic. A change of many items may take several scripts. Open the store with
    `RedisStore.open`.
    """

    def __init__(self, connection: Connection) -> None:
        RedisAccess.__init__(self, self._run)
        RedisAudit.__init__(self, self._run, self._run_fenced)
        RedisDeclarations.__init__(self, self._run)
        RedisReportKeys.__init__(self, self._run)
        RedisScheduling.__init__(self, self._run, self._run_fenced)
        self._connection = connection
        self._changes = ChangeFeed(connection, self._may_have_changed)
        self._last_seen = 0
        self._closed = False

    @classmethod
    async def open(
        cls, address: Address, *, answer_seconds: float = 5.0, memory: Path | None = None
    ) -> "RedisStore":
        """Connect to the server, and return the store, which is created if there is none.

        Raises StoreRefused if the server fails a check (checks.py), or if the service cannot subscribe to the
        changes of jobs.
        """
        connection = Connection(address, answer_seconds)
        try:
            connection.store_id = await open_checked(connection, memory)
            store = cls(connection)
            try:
                await store._changes.start()
            except Exception as error:
                raise StoreRefused(f"{address}: its changes cannot be followed: {explain(error)}") from error
        except BaseException:
            await connection.close()
            raise
        return store

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
        key, digest = (request_key.key, request_key.digest.hex()) if request_key else ("", "")
        most_in_project = "" if max_queued_in_project is None else max_queued_in_project
        fresh = new_job(0, spec, at, tags)
        with self._changes.writing() as write:
            outcome, *rest = await self._run(
                scripts.SUBMIT,
                *(write.token, max_queued, spec.project, most_in_project, spec.submitted_by),
                "" if max_queued_of_caller is None else max_queued_of_caller,
                "" if max_queued_in_queue is None else max_queued_in_queue,
                int(project_must_be_stored),
                *(self._last_seen, key, digest),
                *(spec.name, spec.algorithm, spec.instances, rows.text_of(at)),
                specs.dumped(spec),
                *rows.due_fields(fresh),
                encoding.text_of(encoding.MOVES, fresh.history),
                encoding.text_of(encoding.TAGS, tags),
                *(spec.queue, argument_of(event)),
            )
            if outcome == b"new":
                job = replace(fresh, id=int(rest[0]))
                self._last_seen = max(self._last_seen, job.id)
                self._changes.publish(write, job.id, job.state)
                return job
        if outcome == b"gone":
            raise UnknownProject(spec.project)
        if outcome == b"full":
            count, project, caller, queue = (*rest, b"", b"")[:4]
            raise QueueFull(int(count), project.decode(), caller=caller.decode(), queue=queue.decode())
        return _submitted(outcome, rest, key)

    async def find_submitted(self, request_key: RequestKey) -> Job | None:
        outcome, *rest = await self._run(
            scripts.FIND_SUBMITTED, request_key.project, request_key.key, request_key.digest.hex()
        )
        return None if outcome == b"none" else _submitted(outcome, rest, request_key.key)

    async def get(self, job_id: int) -> Job:
        _, pairs = await self._run(scripts.GET, job_id)
        job = rows.job_of(pairs)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def update(
        self,
        job: Job,
        *,
        term: Term | None = None,
        by: Changes | None = None,
        event: AuditEvent | None = None,
    ) -> Job:
        with self._changes.writing() as write:
            outcome, *rest = await self._run_fenced(
                *(scripts.UPDATE, term),
                *(write.token, job.id, job.version, job.state, _SOURCES[job.state]),
                "1" if job.state.is_terminal else "0",
                *rows.changing_fields(job),
                argument_of(event),
            )
            if outcome == b"done":
                self._changes.publish(write, job.id, job.state, by)
        match outcome:
            case b"missing":
                raise JobNotFound(job.id)
            case b"stale":
                raise StaleJob(job.id, job.version)
            case b"illegal":
                raise IllegalMove(job.id, rest[0].decode(), job.state)
        return replace(job, version=job.version + 1)

    async def annotate(
        self, job: Job, tags: tuple[str, ...], note: str, *, event: AuditEvent | None = None
    ) -> Job:
        with self._changes.writing() as write:
            outcome, *rest = await self._run(
                *(scripts.ANNOTATE, write.token, job.id),
                *(encoding.text_of(encoding.TAGS, job.tags), job.note),
                *(encoding.text_of(encoding.TAGS, tags), note, argument_of(event)),
            )
            if outcome == b"done":
                self._changes.publish(write, job.id, JobState(rest[0].decode()))
        match outcome:
            case b"missing":
                raise JobNotFound(job.id)
            case b"stale":
                raise StaleJob(job.id, job.version)
        return await self.get(job.id)

    async def record_reports(self, reports: Sequence[AttemptReport]) -> Sequence[bool]:
        return await asyncio.gather(*(self._record(report) for report in reports))  # sent in one batch

    async def _record(self, report: AttemptReport) -> bool:
        with self._changes.writing() as write:
            outcome, *rest = await self._run(
                scripts.REPORT,
                *(write.token, report.job_id, report.attempt, repr(report.at.timestamp())),
                encoding.text_of(encoding.PROGRESS, report.progress) if report.progress else "",
                *(MAX_SERIES, MAX_POINTS, MAX_ARTIFACTS),
                *rows.report_fields(report),
            )
            if outcome == b"done":
                self._changes.publish(write, report.job_id, JobState(rest[0].decode()))
        return bool(outcome == b"done")

    async def metric_names(self, job_id: int) -> Sequence[str]:
        _, found = await self._run(scripts.METRIC_NAMES, job_id)
        return sorted(name.decode() for name in found)

    async def metrics(self, job_id: int, names: Collection[str] | None = None) -> Sequence[MetricSeries]:
        if names is not None and not names:
            return []
        _, found = await self._run(scripts.METRICS, job_id, *(names or ()))
        return sorted(
            (rows.series_of(name, points) for name, points in found), key=lambda series: series.name
        )

    async def artifacts(self, job_id: int) -> Sequence[Artifact]:
        _, found = await self._run(scripts.ARTIFACTS, job_id)
        artifacts = (encoding.ARTIFACT.validate_json(content) for content in found)
        return sorted(artifacts, key=lambda artifact: artifact.name)

    async def store_id(self) -> str:
        """Return the first 8 digits of the store's id. The server keeps the whole id, a UUID."""
        return self._connection.store_id[:8]

    async def skip_ids(self, *, beyond: int, number: int) -> int:
        _, last = await self._run(scripts.SKIP_IDS, max(beyond, self._last_seen), number)
        return int(last)

    async def first_queued(self, limit: int, after: int = 0) -> Sequence[Job]:
        jobs: list[Job] = []
        while len(jobs) < limit:
            most = min(limit - len(jobs), _READ_AT_ONCE)  # so that no script blocks the server for long
            _, found = await self._run(scripts.HEAD, most, jobs[-1].id if jobs else after)
            jobs += _jobs(found)
            if len(found) < most:
                break
        return jobs

    async def queued_by_queue(self) -> Mapping[str, int]:
        _, pairs = await self._run(scripts.QUEUES)
        return {name.decode(): int(count) for name, count in zip(pairs[::2], pairs[1::2], strict=True)}

    async def queue_position(self, job: Job) -> int:
        _, position = await self._run(scripts.POSITION, job.id, job.spec.queue)
        return int(position)

    async def live_jobs(self) -> Sequence[Job]:
        _, found = await self._run(scripts.LIVE)
        return _jobs(found)

    async def tallies(self) -> Mapping[JobState, Tally]:
        _, pairs = await self._run(scripts.TALLIES)
        counts = {name.decode(): int(value) for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
        return {
            state: Tally(counts.get(f"{state}:jobs", 0), counts.get(f"{state}:instances", 0))
            for state in JobState
        }

    async def tallies_of(self, projects: Collection[str]) -> Mapping[str, Mapping[JobState, int]]:
        _, names, counts = await self._run(scripts.PROJECT_TALLIES, *projects)
        states = [JobState(name.decode()) for name in names]
        each = iter(counts)
        return {project: {state: next(each) for state in states} for project in projects}

    async def list_jobs(self, where: JobFilter, *, limit: int, before: int | None = None) -> Listing:
        """See JobStore.

        The jobs may be read at different moments during the call.
        """
        jobs: list[Job] = []
        size = 0
        projects = sorted(where.projects or ())
        count = "" if where.projects is None else len(projects)
        below = "+inf" if before is None else f"({before}"
        while True:
            outcome, found, rest = await self._run(
                *(scripts.LIST, limit - len(jobs), LARGEST_LIST - size, below),
                *(where.algorithm, where.name_prefix, where.submitted_by, count),
                *(*rows.time_fields(where), encoding.text_of(encoding.TAGS, tuple(sorted(where.tags)))),
                *(*projects, *sorted(where.states)),
            )
            jobs += _jobs(found)
            size += sum(len(value) for pairs in found for value in pairs)
            if outcome == b"cut" or not rest:
                return Listing(jobs, has_more=outcome == b"cut")
            below = f"({rest.decode()}"

    async def next_due(self, limit: int) -> Sequence[tuple[int, datetime]]:
        _, pairs = await self._run(scripts.DUE, limit)
        return [
            (int(job_id), datetime.fromtimestamp(float(score), UTC))
            for job_id, score in zip(pairs[::2], pairs[1::2], strict=True)
        ]

    async def finished_before(self, moment: datetime, limit: int) -> Sequence[Job]:
        _, found = await self._run(scripts.OLD, repr(moment.timestamp()), limit)
        return _jobs(found)

    async def delete(
        self, job_ids: Sequence[int], *, term: Term | None = None, event: AuditEvent | None = None
    ) -> None:
        assert event is None or len(job_ids) <= _DELETED_AT_ONCE
        for start in range(0, len(job_ids), _DELETED_AT_ONCE):
            some = job_ids[start : start + _DELETED_AT_ONCE]
            await self._run_fenced(scripts.DELETE, term, argument_of(event), *some)

    async def remains(self, limit: int) -> Sequence[Remains]:
        _, found = await self._run(scripts.REMAINS, limit)
        return [rows.remains_of(text) for text in found]

    async def forget_remains(self, job_ids: Sequence[int], *, term: Term | None = None) -> None:
        for start in range(0, len(job_ids), _DELETED_AT_ONCE):
            await self._run_fenced(scripts.FORGET_REMAINS, term, *job_ids[start : start + _DELETED_AT_ONCE])

    def changes(self, job_id: int | None = None) -> AbstractContextManager[Changes]:
        """See JobReader. After a lost connection, every job that may have changed counts as changed."""
        return self._changes.feed.subscribe(job_id)

    async def lead(self, holder: str, lifetime: timedelta, term: Term | None = None) -> Term | None:
        """See LeaseStore.

        If the server loses the writes of its last second, a later term may get the same number as a lost
        term, but never the same token.
        """
        outcome, *rest = await self._run(
            *(scripts.LEAD, holder, round(lifetime.total_seconds() * 1000)),
            *(term.token if term else "", uuid.uuid4().hex),
        )
        return Term(int(rest[0]), rest[1].decode()) if outcome == b"leads" else None

    async def resign(self, term: Term) -> None:
        await self._run(scripts.RESIGN, term.token)

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        """See LeaseStore. An item is yielded after a lost connection, too."""
        return self._changes.resignations.subscribe()

    async def close(self) -> None:
        self._closed = True
        await self._changes.close()
        await self._connection.close()

    async def _run(self, script: Script, *arguments: str | int) -> list[Any]:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return await self._connection.run(script, *arguments)

    async def _run_fenced(self, script: Script, term: Term | None, *arguments: str | int) -> list[Any]:
        answer = await self._run(script, term.token if term else "", *arguments)
        if term is not None and answer[0] == b"term over":
            raise LeadershipLost(f"term {term.number} is over")
        return answer

    async def _may_have_changed(self) -> list[tuple[int, JobState]]:
        """Return the jobs whose changes may have been missed, with their states. Raises StoreUnavailable."""
        jobs = [*await self.live_jobs(), *await self.first_queued(1)]
        found = {job.id: job.state for job in jobs}
        for job_id in self._changes.feed.watched():
            if job_id not in found:
                try:
                    found[job_id] = (await self.get(job_id)).state
                except JobNotFound:
                    found[job_id] = JobState.CANCELLED  # its watchers read the job, and find that it is gone
        return list(found.items())


def _jobs(found: Sequence[Sequence[bytes]]) -> list[Job]:
    return [job for pairs in found if (job := rows.job_of(pairs))]


def _submitted(outcome: bytes, rest: list[Any], key: str) -> Job:
    if outcome == b"conflict":
        raise RequestKeyConflict(key, int(rest[0]))
    job = rows.job_of(rest[0])
    assert job is not None
    return job
