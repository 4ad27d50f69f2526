"""Brings the logs of ended groups from where they ran into storage."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

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
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.spool import Spool
from job_tracker.store.jobs import JobReader

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 30.0
_PROMPT_SECONDS = 5.0
_MOST_UPLOADS = 8


class LogCollector:
    """Keeps logs in storage, and then forgets them where they were.

    The tracker has it done when a group has been stopped. What that could not bring there in time, for
    storage was away or the service was killed, `run` does later: in every replica, as the logs are on
    the machine of the one that was there. All of it may be repeated.
    """

    def __init__(
        self, store: JobReader, spool: Spool, archive: LogArchive, *, period: float = _PERIOD_SECONDS
    ) -> None:
        """`period` is how often `run` looks, in seconds."""
        self._store = store
        self._spool = spool
        self._archive = archive
        self._period = period
        self._uploads = asyncio.Semaphore(_MOST_UPLOADS)
        self._collecting: SharedWork[GroupRef, None] = SharedWork()

    async def collect(self, job: Job) -> None:
        """Keep the logs of the job's group, which has been stopped; if that takes long, in the background."""
        group = job.group
        task = self._collecting.begin(group, lambda: self._collect(job, group), f"logs of {group.name}")
        await asyncio.wait([task], timeout=_PROMPT_SECONDS)

    async def forget(self, job: Job) -> None:
        """Delete the kept logs of a job. It may be repeated. Raises StorageUnavailable."""
        await self._archive.delete(job.folder)

    async def run(self) -> None:
        """Keep what was left behind, again and again, until cancelled."""
        pauses = Backoff(self._period, self._period)
        failure = "logs are not in storage yet"
        await repeat(self._look, pauses, period=self._period, failure=failure, expected=TrackerError)

    async def close(self) -> None:
        """Leave what is being kept to a later service."""
        await self._collecting.close()

    async def _collect(self, job: Job, group: GroupRef) -> None:
        try:
            await self._keep(job, group, anew=True)
        except Exception as error:
            log.warning("the logs of %s are not in storage yet: %s", group.name, error)

    async def _look(self) -> None:
        failures: list[Exception] = []
        for found in await self._spool.waiting():
            try:
                await self._look_at(found)
            except (StorageUnavailable, StoreUnavailable):
                raise  # the others would wait for it as well
            except Exception as error:  # of this group alone
                failures.append(error)
        if failures:
            raise failures[0]

    async def _look_at(self, found: GroupRef) -> None:
        try:
            job = await self._store.get(found.job_id)
        except JobNotFound:
            await self._spool.drop(found)
            return
        if job.spec.home and not found.home:  # of a job of that number in a store of the version before
            await self._spool.drop(found)
            return
        group = replace(found, home=job.spec.home)
        is_live = job.state.is_live and job.attempt == group.attempt
        if not is_live and group not in self._collecting:
            await self._keep(job, group, anew=False)

    async def _keep(self, job: Job, group: GroupRef, *, anew: bool) -> None:
        """Without `anew`, a log that is there stays: who wrote it knew no less of it."""
        keeping = (self._keep_rank(group, rank, anew=anew) for rank in range(job.spec.instances))
        failures = [each for each in await asyncio.gather(*keeping, return_exceptions=True) if each]
        if failures:
            raise failures[0]
        with suppress(StorageUnavailable):  # what is left goes with the job
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
