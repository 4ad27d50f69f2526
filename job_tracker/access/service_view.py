"""The service as its operators see it: replicas, the leader, the job store and the storage."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from job_tracker.common.clock import utc_now
from job_tracker.domain.audit import EventObserver, ignore_event
from job_tracker.domain.caller import Caller
from job_tracker.domain.guard import Guard
from job_tracker.domain.states import JobState
from job_tracker.files.storage_health import StorageHealth, storage_health
from job_tracker.store.queue import QueueView
from job_tracker.store.scheduling import SchedulingStore
from job_tracker.tracking.replicas import Replica, replicas_of


class _Store(QueueView, SchedulingStore, Protocol):
    """The parts of a store that this module reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStanding:
    """The state of the service."""

    at: datetime
    replicas: Sequence[Replica]
    store_id: str
    store_place: str
    """The kind of the store, and the path of its file or the address of its server, without secrets."""
    store_seconds: float
    """The number of seconds that the job store took to count the jobs."""
    jobs: Mapping[JobState, int]
    """The number of jobs in each state. States without jobs are left out."""
    storage: StorageHealth

    @property
    def leader(self) -> Replica | None:
        """The replica that tracks jobs; None while no leader is known."""
        now = self.at.timestamp()
        leading = [each for each in self.replicas if each.is_leading and not each.is_missing(now)]
        return max(leading, key=lambda each: each.seen_at, default=None)


class ServiceView:
    """Lets operators see the state of the service."""

    def __init__(
        self,
        store: _Store,
        *,
        store_id: str,
        store_place: str,
        storage: str,
        note: EventObserver = ignore_event,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`storage` is the URI of models, checkpoints and logs."""
        self._store = store
        self._store_id = store_id
        self._store_place = store_place
        self._storage = storage
        self._guard = Guard(note, clock)
        self._clock = clock

    async def see_service(self, caller: Caller) -> ServiceStanding:
        """Return the state of the service.

        Raises Forbidden if the caller is not an operator, and StoreUnavailable if the store does not answer.
        """
        self._guard.check_everywhere(caller, "see_service")
        began = time.monotonic()
        tallies = await self._store.tallies()
        seconds = time.monotonic() - began
        return ServiceStanding(
            at=self._clock(),
            replicas=await replicas_of(self._store),
            store_id=self._store_id,
            store_place=self._store_place,
            store_seconds=seconds,
            jobs={state: tally.jobs for state, tally in tallies.items() if tally.jobs},
            storage=await storage_health(self._storage),
        )
