"""What users may do with jobs: the operations behind the API, without its protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from job_tracker.backends.base import Backend
from job_tracker.errors import InvalidField, LogsNotFound, StaleJob
from job_tracker.model import Ending, Job, JobSpec, JobState
from job_tracker.store.base import JobFilter, JobStore
from job_tracker.submission import Door, JobRequest
from job_tracker.tracker import utc_now

# How often those who wait look again without having been told: at the place in the queue, which
# changes with other jobs, and at a log that a started job has not opened yet.
_POSITION_SECONDS = 1.0
_LOG_SECONDS = 0.2


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


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Whole lines of one rank's log."""

    text: str
    rank: int
    attempt: int


class Jobs:
    """Submits, shows and cancels jobs. What happens to them then is the tracker's."""

    def __init__(
        self,
        store: JobStore,
        backend: Backend[Any],
        door: Door,
        *,
        max_queued: int,
        rehearse: Callable[[JobSpec], Awaitable[None]] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`rehearse` raises InvalidField for a spec that the backend's engine would not take."""
        self._store = store
        self._backend = backend
        self._door = door
        self._max_queued = max_queued
        self._rehearse = rehearse
        self._clock = clock

    async def submit(self, request: JobRequest) -> Job:
        """Queue a job; it is durable when this returns. Raises what Door.check and JobStore.submit do."""
        key = self._door.key_of(request)
        # First of all: a repeated request gets its job even if it would not be let in any more.
        if key is not None and (known := await self._store.find_submitted(key)):
            return known
        spec = await self._door.check(request)
        if self._rehearse is not None:
            await self._rehearse(spec)
        return await self._store.submit(spec, self._clock(), key, self._max_queued)

    async def get(self, job_id: int) -> JobView:
        """The job as it is now. Raises JobNotFound."""
        return await self._view(await self._store.get(job_id))

    async def list(self, where: JobFilter, *, limit: int, before: int | None) -> Page:
        """At most `limit` jobs with ids below `before`."""
        jobs = await self._store.list_jobs(where, limit=limit + 1, before=before)
        page = jobs[:limit]
        return Page(
            jobs=await asyncio.gather(
                *(self._view(job) for job in page)
            ),  # together, as the store may be far
            next_before=page[-1].id if len(jobs) > limit else None,
        )

    async def cancel(self, job_id: int) -> JobView:
        """See to it that the job ends as cancelled, unless its outcome is decided. May be repeated.

        A queued job has ended when this returns; the group of a live one is about to be stopped, also
        if its outcome is decided and its workers had been given time to end.
        """
        while True:
            job = await self._store.get(job_id)
            if job.state.is_terminal or (job.ending is not None and job.ending.at_once):
                return await self._view(job)
            if job.ending is not None:
                after = replace(job, ending=replace(job.ending, at_once=True))
            else:
                ending = Ending(JobState.CANCELLED, self._clock(), at_once=True)
                queued = job.state is JobState.QUEUED
                after = job.ended(ending, self._clock()) if queued else job.decided(ending)
            try:
                return await self._view(await self._store.update(after))
            except StaleJob:
                continue

    async def watch(self, job_id: int) -> AsyncIterator[JobView]:
        """The job now and after every change, until it has ended. Raises JobNotFound."""
        with self._store.changes(job_id) as changes:
            last = await self.get(job_id)
            yield last
            while not last.job.state.is_terminal:
                patience = _POSITION_SECONDS if last.job.state is JobState.QUEUED else None
                try:
                    async with asyncio.timeout(patience):
                        await anext(changes)
                except TimeoutError:
                    pass
                view = await self.get(job_id)
                if view != last:
                    last = view
                    yield view

    async def logs(
        self, job_id: int, rank: int, *, follow: bool, tail_lines: int | None
    ) -> AsyncIterator[LogPiece]:
        """What the rank printed; with `follow` also what it is going to, until the job has ended.

        Raises JobNotFound, and InvalidField for a rank that the job does not have.
        """
        job = await self._store.get(job_id)
        if not 0 <= rank < job.spec.instances:
            raise InvalidField(
                "rank", f"{rank} is not a rank of job {job_id}: it has 0 to {job.spec.instances - 1}"
            )
        if tail_lines is not None and tail_lines < 0:
            raise InvalidField("tail_lines", f"{tail_lines} is negative")
        if follow:
            job = await self._launched(job_id)
        while job.attempt:
            try:
                pieces = self._backend.logs(job.group, rank, follow=follow, tail_lines=tail_lines)
                async for text in pieces:
                    yield LogPiece(text, rank, job.attempt)
                return
            except LogsNotFound:
                if not (follow and job.state.is_live):
                    return
                await asyncio.sleep(_LOG_SECONDS)
                job = await self._store.get(job_id)

    async def _launched(self, job_id: int) -> Job:
        async for view in self.watch(job_id):
            if view.job.state is not JobState.QUEUED:
                return view.job
        return await self._store.get(job_id)

    async def _view(self, job: Job) -> JobView:
        queued = job.state is JobState.QUEUED
        return JobView(job, await self._store.queue_position(job) if queued else 0)
