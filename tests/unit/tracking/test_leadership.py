"""When a replica tracks: never without the lease, and never for longer than it is sure of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.errors import LeadershipLost, StoreUnavailable
from job_tracker.store.lease import LeaseStore, Term
from job_tracker.tracking.leadership import Leadership, Tenure

SHORT = timedelta(milliseconds=200)
LONG = timedelta(minutes=1)


class Leases:
    """The half of a store that leadership needs. Its lease is over when a test says so."""

    def __init__(self) -> None:
        self.term: Term | None = None
        self.terms = 0
        self.renewals = 0
        self.is_away = False
        self.resigned: Broadcast[int, None] = Broadcast()

    async def lead(self, holder: str, lifetime: timedelta, term: Term | None = None) -> Term | None:
        if self.is_away:
            raise StoreUnavailable("it is away")
        if term is not None:
            self.renewals += 1
            return term if term == self.term else None
        return self.elect() if self.term is None else None

    def elect(self) -> Term:
        """Somebody wins."""
        self.terms += 1
        self.term = Term(self.terms, f"token {self.terms}")
        return self.term

    async def resign(self, term: Term) -> None:
        if term == self.term:
            self.free()

    def free(self) -> None:
        """Whoever leads has resigned."""
        self.term = None
        self.resigned.publish(self.terms, None)

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        return self.resigned.subscribe()


class Replica:
    """One that says when it begins to track, and when it has ended."""

    def __init__(self, leases: Leases, lifetime: timedelta, **options: Any) -> None:
        self.tenure: Tenure | None = None
        self.said: list[bool] = []
        self.crash: Exception | None = None
        self._changed = asyncio.Condition()
        self._leases = leases
        self.leadership = Leadership(
            cast(LeaseStore, leases),
            self._track,
            holder="me",
            lifetime=lifetime,
            on_change=self.said.append,
            **options,
        )

    async def _track(self, tenure: Tenure) -> None:
        try:
            await self._become(tenure)
            if self.crash is not None:
                crash, self.crash = self.crash, None
                raise crash
            await asyncio.Event().wait()
        finally:
            assert self._leases.term is not None or self._leases.is_away, "it resigned too early"
            await self._become(None)

    async def _become(self, tenure: Tenure | None) -> None:
        async with self._changed:
            self.tenure = tenure
            self._changed.notify_all()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(condition)

    async def leads(self) -> Tenure:
        await self.until(lambda: self.tenure)
        assert self.tenure is not None
        return self.tenure

    async def leads_no_more(self) -> None:
        await self.until(lambda: self.tenure is None)


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[Replica]:
    task = asyncio.create_task(replica.leadership.run())
    try:
        yield replica
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.fixture
def leases() -> Leases:
    return Leases()


async def test_the_first_replica_leads_and_resigns_when_it_is_stopped(leases: Leases) -> None:
    async with running(Replica(leases, LONG)) as replica:
        assert (await replica.leads()).term == leases.term
        assert replica.said == [True]
    assert replica.said == [True, False]
    assert await leases.lead("another", LONG) is not None


async def test_a_resignation_is_followed_at_once(leases: Leases) -> None:
    leases.elect()
    async with running(Replica(leases, LONG)) as replica:
        await asyncio.sleep(0)  # it has asked, and waits
        leases.free()
        assert (await replica.leads()).term.number == 2


async def test_who_leads_renews(leases: Leases) -> None:
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        await asyncio.sleep(2 * SHORT.total_seconds())
        assert replica.tenure is not None
        assert leases.renewals >= 3
        assert leases.terms == 1


async def test_who_is_deposed_tracks_no_more_and_stands_again(leases: Leases) -> None:
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        another = leases.elect()
        await replica.leads_no_more()
        assert leases.term == another, "a resignation from an earlier term changes nothing"
        leases.free()
        assert (await replica.leads()).term.number == 3


async def test_a_leader_without_the_store_ends_when_its_lease_does_and_comes_back_with_it(
    leases: Leases,
) -> None:
    loop = asyncio.get_running_loop()
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        leases.is_away, away_at = True, loop.time()
        await replica.leads_no_more()
        assert loop.time() - away_at < SHORT.total_seconds() + 0.15
        leases.is_away = False
        leases.free()
        assert (await replica.leads()).term.number == 2


async def test_a_short_outage_of_the_store_is_no_end(leases: Leases) -> None:
    async with running(Replica(leases, timedelta(seconds=1))) as replica:
        await replica.leads()
        leases.is_away = True
        await asyncio.sleep(0.5)
        leases.is_away = False
        await asyncio.sleep(0.7)
        assert replica.tenure is not None
        assert leases.terms == 1


async def test_who_slept_through_the_end_of_the_lease_knows_it_before_it_does_anything(
    leases: Leases,
) -> None:
    now = 0.0
    async with running(Replica(leases, LONG, clock=lambda: now)) as replica:
        tenure = await replica.leads()
        tenure.check()
        now = LONG.total_seconds()
        with pytest.raises(LeadershipLost, match="its lease could not be renewed in time"):
            tenure.check()


async def test_what_the_tracker_finds_out_ends_the_term_at_once(leases: Leases) -> None:
    async with running(Replica(leases, LONG)) as replica:
        tenure = await replica.leads()
        leases.elect()
        tenure.end("the store says so")
        await replica.leads_no_more()
        with pytest.raises(LeadershipLost, match="the store says so"):
            tenure.check()


async def test_a_tracker_that_fails_makes_room_for_another(
    leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(leases, SHORT)
    replica.crash = RuntimeError("a mistake")
    async with running(replica):
        await replica.until(lambda: leases.terms == 2 and replica.tenure)
    assert "the tracker ended unexpectedly" in caplog.text
    assert "a mistake" in caplog.text
