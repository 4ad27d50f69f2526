"""Leader election: one replica holds a lease in the store, and tracks only while it holds the lease.

A leader loses its term in one of two ways. Either the store grants the next term, and from then on refuses
all writes of the earlier term. Or the leader fails to renew its lease in time. The leader counts the time of
its lease from just before it asked for the lease. So it stops before the store lets another replica begin.
The store can refuse only writes to the store itself. Therefore, the tracker calls `Tenure.check` before it
starts or stops a group.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from job_tracker.common.clock import boot_seconds
from job_tracker.common.tasks import end
from job_tracker.domain.errors import LeadershipLost, StoreLost, StoreUnavailable
from job_tracker.store.lease import LeaseStore, Term

log = logging.getLogger(__name__)

# The approximate number of times that each operation is tried within one lease.
_RENEWALS = 3
_CAMPAIGNS = 5
_RETRIES = 20


class Tenure:
    """A term of this replica, and the time until which the term certainly lasts, by the clock of this
    machine.
    """

    def __init__(self, term: Term, until: float, clock: Callable[[], float] = boot_seconds) -> None:
        """`until` is the end of the lease in seconds of `clock`, if the lease is not renewed."""
        self.term = term
        self.reason = "its lease could not be renewed in time"
        self._until = until
        self._clock = clock
        self._ended = asyncio.Event()

    @property
    def seconds_left(self) -> float:
        """Return the remaining seconds of the term; 0 or less when it is over."""
        return 0.0 if self._ended.is_set() else self._until - self._clock()

    def extend(self, until: float) -> None:
        """Record that the lease was renewed."""
        self._until = until

    def end(self, reason: str) -> None:
        """Record that the term is over."""
        if not self._ended.is_set():
            self.reason = reason
            self._ended.set()

    def check(self) -> None:
        """Raise LeadershipLost if the term is over."""
        if self.seconds_left <= 0:
            raise LeadershipLost(self.reason)

    async def is_over(self, *, within: float) -> bool:
        """Wait for the end of the term, at most `within` seconds; return whether it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within, max(0.0, self.seconds_left))):
                await self._ended.wait()
        return self.seconds_left <= 0


class Leadership:
    """Campaigns for the lease, and runs `track` in each term that it wins."""

    def __init__(
        self,
        store: LeaseStore,
        track: Callable[[Tenure], Awaitable[None]],
        *,
        holder: str,
        lifetime: timedelta,
        on_change: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        """`holder` is this replica's name in logs.

        `on_change` is called with True when the replica begins to lead, and with False when it no longer
        leads.
        """
        self._store = store
        self._track = track
        self._holder = holder
        self._lifetime = lifetime
        self._seconds = lifetime.total_seconds()
        self._on_change = on_change
        self._clock = clock

    async def run(self) -> None:
        """Campaign for the lease and lead until cancelled, then resign.

        Raises StoreLost if the store can never write again.
        """
        while True:
            tenure = await self._elected()
            await self._lead(tenure)

    async def _elected(self) -> Tenure:
        logged = ""
        with self._store.resignations() as resignations:
            while True:
                asked_at = self._clock()
                try:
                    term = await self._ask()
                except StoreLost:
                    raise
                except StoreUnavailable as error:
                    term = None
                    if str(error) != logged:
                        log.warning("%s cannot stand for election: %s", self._holder, logged := str(error))
                if term is not None:
                    return Tenure(term, asked_at + self._seconds, self._clock)
                # The pause is random, so that the replicas do not campaign at the same moment.
                pause = self._seconds / _CAMPAIGNS * random.uniform(0.5, 1)  # noqa: S311
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await anext(resignations)

    async def _ask(self) -> Term | None:
        """Ask for the lease. Return the term if it is won.

        A cancelled call may still win, and the lease would then keep other replicas from leading. So, when
        cancelled, wait for the answer, and give up the term.
        """
        asking = asyncio.ensure_future(self._store.lead(self._holder, self._lifetime))
        try:
            await asyncio.wait((asking,))
        except asyncio.CancelledError:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(self._seconds):  # after that time, the lease expires by itself
                    if (term := await asking) is not None:
                        await self._store.resign(term)
            raise
        return asking.result()

    async def _lead(self, tenure: Tenure) -> None:
        log.info("%s leads now (term %d)", self._holder, tenure.term.number)
        self._on_change(True)
        tracking = asyncio.ensure_future(self._track(tenure))
        holding = asyncio.create_task(self._hold(tenure), name="lease")
        try:
            await asyncio.wait((tracking, holding), return_when=asyncio.FIRST_COMPLETED)
            if tracking.done():
                log.critical("the tracker ended unexpectedly", exc_info=tracking.exception())
                await asyncio.wait((holding,), timeout=self._seconds)
            if holding.done():
                holding.result()
        finally:
            await end(holding, tracking)
            self._on_change(False)
            await self._resign(tenure)

    async def _hold(self, tenure: Tenure) -> None:
        """Renew the lease until the term is over. Raises StoreLost if the store can never write again."""
        pause = self._seconds / _RENEWALS
        while not await tenure.is_over(within=pause):
            asked_at = self._clock()
            try:
                async with asyncio.timeout(tenure.seconds_left):
                    term = await self._store.lead(self._holder, self._lifetime, tenure.term)
            except StoreLost:
                raise
            except (StoreUnavailable, TimeoutError) as error:
                log.warning("the lease was not renewed: %s", str(error) or "no answer in time")
                pause = self._seconds / _RETRIES
            else:
                pause = self._seconds / _RENEWALS
                if term is None:
                    tenure.end("another replica leads")
                else:
                    tenure.extend(asked_at + self._seconds)

    async def _resign(self, tenure: Tenure) -> None:
        """Give up the lease, so that another replica can lead at once.

        This is also done if the lease has expired by this replica's clock, because the store may have renewed
        it without an answer that came in time.
        """
        if is_lost := tenure.seconds_left <= 0:
            log.warning("%s lost leadership (term %d): %s", self._holder, tenure.term.number, tenure.reason)
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(self._seconds):  # after that time, the lease expires by itself
                await self._store.resign(tenure.term)
        if not is_lost:
            log.info("%s resigned leadership (term %d)", self._holder, tenure.term.number)
