"""Moves logs of ended groups from their machines to storage."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial

from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import SharedWork, repeat
from job_tracker.domain.errors import (
    JobNotFound,
    LogsNotFound,
    StorageUnavailable,
    StoreUnavailable,
    TrackerError,
)
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.domain.remains import Remains
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.spool import Spool
from job_tracker.store.jobs import JobReader

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 30.0
_PROMPT_SECONDS = 5.0
_MOST_UPLOADS = 8


class LogCollector:
    """Stores logs in the archive, then deletes them from the spool. All steps may be repeated.

    The tracker calls `collect` after a group was stopped. If the storage is unavailable or the service is
    killed, `run` stores the logs later. `run` is active in every replica, since each replica has logs on its
    own machine.
    """

    def __init__(
        self, store: JobReader, spool: Spool, archive: LogArchive, *, period: float = _PERIOD_SECONDS
    ) -> None:
        """`period` is the pause between two rounds of `run`, in seconds."""
        self._store = store
        self._spool = spool
        self._archive = archive
        self._period = period
        self._uploads = asyncio.Semaphore(_MOST_UPLOADS)
        self._collecting: SharedWork[GroupRef, None] = SharedWork()

    async def collect(self, job: Job) -> None:
        """Store the logs of a stopped group.

        If this takes more than a few seconds, it continues in the background.
        """
        group = job.group
        task = self._collecting.begin(group, lambda: self._collect(job, group), f"logs of {group.name}")
        await asyncio.wait([task], timeout=_PROMPT_SECONDS)

    async def forget(self, job: Remains) -> None:
        """Delete the stored logs of a deleted job.

        The call may be repeated. Raises StorageUnavailable if the storage is unavailable, or while logs of
        the job are still being stored.
        """
        if any(group in self._collecting for group in job.groups):
            raise StorageUnavailable(f"the logs of job {job.job_id} are still being stored")
        await self._archive.delete(job.folder)

    async def run(self) -> None:
        """Until cancelled, periodically store the logs that wait in the spool."""
        pauses = Backoff(self._period, self._period)
        failure = "logs are not stored yet"
        await repeat(self._look, pauses, period=self._period, failure=failure, expected=TrackerError)

    async def close(self) -> None:
        """Stop storing logs. The service stores the remaining logs after its next start."""
        await self._collecting.close()

    async def _collect(self, job: Job, group: GroupRef) -> None:
        try:
            await self._keep(job, group, anew=True)
        except Exception as error:
            log.warning("the logs of %s are not stored yet: %s", group.name, error)

    async def _look(self) -> None:
        failures: list[Exception] = []
        for found in await self._spool.waiting():
            try:
                await self._look_at(found)
            except (StorageUnavailable, StoreUnavailable):
                raise  # the other groups would fail for the same reason
            except Exception as error:  # a failure of this group must not delay the others
                failures.append(error)
        if failures:
            raise failures[0]

    async def _look_at(self, found: GroupRef) -> None:
        try:
            job = await self._store.get(found.job_id)
        except JobNotFound:
            await self._spool.drop(found)
            return
        if job.spec.home and not found.home:  # the log belongs to a job with the same id in an earlier store
            await self._spool.drop(found)
            return
        group = replace(found, home=job.spec.home)
        is_live = job.state.is_live and job.attempt == group.attempt
        if not is_live and group not in self._collecting:
            work = partial(self._keep, job, group, anew=False)
            await self._collecting.do(group, work, f"logs of {group.name}")

    async def _keep(self, job: Job, group: GroupRef, *, anew: bool) -> None:
        """Store the logs of a group, and delete them from the spool.

        Without `anew`, logs that are already stored are not stored again, since they are complete.
        """
        keeping = (self._keep_rank(group, rank, anew=anew) for rank in range(job.spec.instances))
        failures = [each for each in await asyncio.gather(*keeping, return_exceptions=True) if each]
        if failures:
            raise failures[0]
        with suppress(StorageUnavailable):  # unfinished uploads that stay are deleted with the job
            await self._archive.tidy(group)
        await self._spool.drop(group)

    async def _keep_rank(self, group: GroupRef, rank: int, *, anew: bool) -> None:
        async with self._uploads:
            if not anew and await self._archive.has(group, rank):
                return
            try:
                await self._archive.write(group, rank, self._spool.read(group, rank))
            except LogsNotFound:
                return
