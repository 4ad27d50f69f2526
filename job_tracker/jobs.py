"""The operations on jobs behind the API, independent of its protocol."""

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
    """A job, and the number of jobs queued before it (0 unless it is queued itself)."""

    job: Job
    position: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs, newest first, and the `before` of the next page; None on the last page."""

    jobs: Sequence[JobView]
    next_before: int | None


class _Store(JobStore, QueueView, ReportStore, Protocol):
    """The parts of a store that the operations use."""


class Jobs:
    """Submits, reads and cancels jobs. The tracker runs them."""

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
        """Each of `preflights` raises InvalidField for a spec whose launch would fail."""
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
        """Queue a job, and return it once it is durable. Raises as Admission.check and JobStore.submit do."""
        key = self._admission.key_of(request)
        # First, so that a repeated request gets its job even if admission would now refuse it.
        if key is not None and (known := await self._store.find_submitted(key)):
            return known
        spec = await self._admission.check(caller, request)
        if self._parameter_check is not None:
            await self._parameter_check.check(caller, spec)
        for preflight in self._preflights:
            await preflight.check(spec)
        return await self._store.submit(spec, self._clock(), key, self._max_queued)

    async def get(self, caller: Caller, job_id: int) -> JobView:
        """Return the current job. Raises JobNotFound."""
        return await self._view(await self._store.get(job_id))

    async def list(self, caller: Caller, where: JobFilter, *, limit: int, before: int | None) -> Page:
        """Return at most `limit` jobs with ids below `before`; fewer if the jobs are large."""
        found = await self._store.list_jobs(where, limit=limit, before=before)
        views = await asyncio.gather(*map(self._view, found.jobs))  # concurrently: the store may be remote
        return Page(views, found.jobs[-1].id if found.has_more else None)

    async def cancel(self, caller: Caller, job_id: int) -> JobView:
        """Cancel the job, unless its outcome is decided. May be repeated.

        A job without a group (queued, or in its back-off) has ended when this returns. The group of a live
        job is stopped soon. If a succeeded master has left workers with time to end, that time is over.
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
        """Yield the job now and after every change, until it has ended. Raises JobNotFound."""
        with self._store.changes(job_id) as changes, ExitStack() as stack:
            stack.callback(self._queue_moves.leave, changes)
            last: tuple[int, Progress | None, int] | None = None
            while True:
                # Keep no reference to the view while its reader is slow: a job's parameters may be large.
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
        """Yield the output of the job's processes, with `follow` also the future one; see LogReader.read."""
        return self._logs.read(caller, job_id, wanted)

    async def metrics(self, caller: Caller, job_id: int, names: Collection[str]) -> Sequence[MetricSeries]:
        """Return the job's series of these names, or all if there are none. Raises JobNotFound."""
        await self._store.get(job_id)
        found = await self._store.metrics(job_id)
        return [series for series in found if not names or series.name in names]

    async def artifacts(self, caller: Caller, job_id: int) -> tuple[Job, Sequence[tuple[Artifact, bool]]]:
        """Return the job and its artifacts, each with whether `fetch` can read it.

        Raises JobNotFound and StorageUnavailable.
        """
        job = await self._store.get(job_id)
        files, reported = await asyncio.gather(self._models.list(job), self._store.artifacts(job_id))
        return job, merged(files, reported)

    async def fetch(self, caller: Caller, job_id: int, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of one of the job's artifacts.

        Raises JobNotFound, InvalidField, UnknownReference and StorageUnavailable.
        """
        async for piece in self._models.read(await self._store.get(job_id), name):
            yield piece

    async def _view(self, job: Job) -> JobView:
        queued = job.state is JobState.QUEUED
        return JobView(job, await self._store.queue_position(job) if queued else 0)
