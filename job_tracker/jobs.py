"""What users may do with jobs: the operations behind the API, without its protocol."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.admission.parameter_check import ParameterCheck
from job_tracker.backends.registry import Preflight
from job_tracker.common.clock import utc_now
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import StaleJob
from job_tracker.domain.job import Ending, Job, JobState, Progress
from job_tracker.domain.observers import JobObserver, ignore_job
from job_tracker.domain.telemetry import Artifact, MetricSeries
from job_tracker.files.artifacts import ModelFiles, merged
from job_tracker.logs.reader import LogPiece, LogReader, LogRequest
from job_tracker.store.jobs import JobFilter, JobStore
from job_tracker.store.queue import QueueView
from job_tracker.store.queue_moves import QueueMoves
from job_tracker.store.reports import ReportStore


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, and how many are queued before it (0 unless it is queued itself)."""

    job: Job
    position: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first, and where the next page begins; None on the last."""

    jobs: Sequence[JobView]
    next_before: int | None


class _Store(JobStore, QueueView, ReportStore, Protocol):
    """What the operations need of a store."""


class Jobs:
    """Submits, shows and cancels jobs. What happens to them then is the tracker's.

    Each operation takes its caller first.
    """

    def __init__(
        self,
        store: _Store,
        logs: LogReader,
        admission: Admission,
        models: ModelFiles,
        *,
        max_queued: int,
        parameter_check: ParameterCheck | None = None,
        preflights: Sequence[Preflight] = (),
        clock: Callable[[], datetime] = utc_now,
        on_save: JobObserver = ignore_job,
    ) -> None:
        """Each of `preflights` raises InvalidField for a spec that would fail once it is launched."""
        self._store = store
        self._logs = logs
        self._admission = admission
        self._models = models
        self._max_queued = max_queued
        self._parameter_check = parameter_check
        self._preflights = preflights
        self._clock = clock
        self._on_save = on_save
        self._queue_moves = QueueMoves(store)

    async def submit(self, caller: Caller, request: JobRequest) -> Job:
        """Queue a job; it is durable when this returns. Raises as Admission.check and JobStore.submit."""
        key = self._admission.key_of(request)
        # First of all: a repeated request gets its job even if it would not be let in any more.
        if key is not None and (known := await self._store.find_submitted(key)):
            return known
        spec = await self._admission.check(caller, request)
        if self._parameter_check is not None:
            await self._parameter_check.check(caller, spec)
        for preflight in self._preflights:
            await preflight.check(spec)
        return await self._store.submit(spec, self._clock(), key, self._max_queued)

    async def get(self, caller: Caller, job_id: int) -> JobView:
        """The job as it is now. Raises JobNotFound."""
        return await self._view(await self._store.get(job_id))

    async def list(self, caller: Caller, where: JobFilter, *, limit: int, before: int | None) -> Page:
        """At most `limit` jobs with ids below `before`; fewer if they are large."""
        found = await self._store.list_jobs(where, limit=limit, before=before)
        views = await asyncio.gather(*map(self._view, found.jobs))  # together, as the store may be far
        return Page(views, found.jobs[-1].id if found.has_more else None)

    async def cancel(self, caller: Caller, job_id: int) -> JobView:
        """See to it that the job ends as cancelled, unless its outcome is decided. May be repeated.

        A job without a group (queued, or between two attempts) has ended when this returns; the group
        of a live one is about to be stopped, also if its outcome is decided and its workers had been
        given time to end.
        """
        while True:
            job = await self._store.get(job_id)
            if job.state.is_terminal or (job.ending is not None and job.ending.at_once):
                return await self._view(job)
            ending = Ending(JobState.CANCELLED, self._clock(), at_once=True)
            if not job.state.is_live:
                after = job.ended(ending, ending.decided_at)
            elif job.ending is None or job.ending.state is JobState.BACKOFF:
                after = job.decided(ending)
            else:
                after = replace(job, ending=replace(job.ending, at_once=True))
            try:
                cancelled = await self._store.update(after)
            except StaleJob:
                continue
            self._on_save(job, cancelled)
            return await self._view(cancelled)

    async def watch(self, caller: Caller, job_id: int) -> AsyncGenerator[JobView, None]:
        """The job now and after every change, until it has ended. Raises JobNotFound."""
        with self._store.changes(job_id) as changes, ExitStack() as stack:
            stack.callback(self._queue_moves.leave, changes)
            last: tuple[int, Progress | None, int] | None = None
            while True:
                # No view is kept while its reader takes its time: the parameters of a job may be large.
                views = [await self.get(caller, job_id)]
                job, state = views[0].job, views[0].job.state
                before, last = last, (job.version, job.progress, views[0].position)
                del job
                if last != before:
                    yield views.pop()
                if state.is_terminal:
                    return
                if state is JobState.QUEUED:
                    self._queue_moves.watch(job_id, changes)
                else:
                    self._queue_moves.leave(changes)
                await anext(changes)

    def logs(self, caller: Caller, job_id: int, wanted: LogRequest) -> AsyncGenerator[LogPiece, None]:
        """What the job's processes printed, and with `follow` what they are going to; see LogReader.read."""
        return self._logs.read(caller, job_id, wanted)

    async def metrics(self, caller: Caller, job_id: int, names: Collection[str]) -> Sequence[MetricSeries]:
        """The job's series of these names, or all. Raises JobNotFound."""
        await self._store.get(job_id)
        found = await self._store.metrics(job_id)
        return [series for series in found if not names or series.name in names]

    async def artifacts(self, caller: Caller, job_id: int) -> tuple[Job, Sequence[tuple[Artifact, bool]]]:
        """The job, and what it has made, each with whether `fetch` gives it.

        Raises JobNotFound, and StorageUnavailable.
        """
        job = await self._store.get(job_id)
        files, reported = await asyncio.gather(self._models.list(job), self._store.artifacts(job_id))
        return job, merged(files, reported)

    async def fetch(self, caller: Caller, job_id: int, name: str) -> AsyncGenerator[bytes, None]:
        """The content of one of the job's artifacts.

        Raises JobNotFound, InvalidField, UnknownReference and StorageUnavailable.
        """
        async for piece in self._models.read(await self._store.get(job_id), name):
            yield piece

    async def _view(self, job: Job) -> JobView:
        queued = job.state is JobState.QUEUED
        return JobView(job, await self._store.queue_position(job) if queued else 0)
