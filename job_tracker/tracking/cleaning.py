"""Removes jobs, audit events and groups that no longer have to be kept."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from job_tracker.backends.base import Backend
from job_tracker.logs.collector import LogCollector
from job_tracker.store.audit import AuditStore
from job_tracker.store.jobs import JobStore
from job_tracker.tracking.leadership import Tenure

log = logging.getLogger(__name__)

_PRUNE_BATCH = 100
_EVENTS_BATCH = 500


class _Store(JobStore, AuditStore, Protocol):
    """The parts of a store that the cleaner uses."""


class Cleaner:
    """Removes old data. Each method may be repeated, and raises LeadershipLost if the term is over."""

    def __init__(
        self,
        store: _Store,
        backend: Backend,
        logs: LogCollector,
        tenure: Tenure,
        clock: Callable[[], datetime],
        *,
        keep_finished: timedelta,
        keep_events: timedelta,
    ) -> None:
        """Ended jobs are kept for the time `keep_finished`, and audit events for the time `keep_events`."""
        self._store = store
        self._backend = backend
        self._logs = logs
        self._tenure = tenure
        self._clock = clock
        self._keep_finished = keep_finished
        self._keep_events = keep_events

    async def sweep(self) -> None:
        """Remove the objects of stopped groups, such as folders and pods, that no longer have to be kept."""
        self._tenure.check()
        await self._backend.sweep(self._clock())

    async def prune(self) -> None:
        """Delete jobs that ended long ago. Then remove their groups and logs, and those of jobs that users
        deleted. Finally, delete old audit events.
        """
        horizon = self._clock() - self._keep_finished
        while old := await self._store.finished_before(horizon, _PRUNE_BATCH):
            # The store accepts writes of this term until another replica gets the lease. The lease of this
            # replica may have expired long before, so the tenure is checked here.
            self._tenure.check()
            await self._store.delete([job.id for job in old], term=self._tenure.term)
            log.info("pruned %d jobs that ended before %s", len(old), horizon)
        while left := await self._store.remains(_PRUNE_BATCH):
            self._tenure.check()
            await self._backend.sweep(self._clock(), {group for each in left for group in each.groups})
            for each in left:
                await self._logs.forget(each)
            await self._store.forget_remains([each.job_id for each in left], term=self._tenure.term)
            log.info("removed the groups and logs of %d deleted jobs", len(left))
        horizon = self._clock() - self._keep_events
        deleted = _EVENTS_BATCH
        while deleted == _EVENTS_BATCH:
            self._tenure.check()
            deleted = await self._store.delete_events(horizon, _EVENTS_BATCH, term=self._tenure.term)
