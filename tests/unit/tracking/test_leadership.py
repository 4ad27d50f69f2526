"""A replica tracks only while it certainly holds the lease."""

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
from tests.support.patience import PATIENCE

SHORT = timedelta(milliseconds=200)
LONG = timedelta(minutes=1)

pytestmark = pytest.mark.usefixtures("skipped_time")


class Leases:
    """The lease store of a test, which decides when the lease is over."""

    def __init__(self) -> None:
        self.term: Term | None = None
        self.terms = 0
        self.renewals = 0
        self.is_away = False
        self.answers = asyncio.Event()
        """Set while elections and renewals get their answers. They are made in any case."""
        self.answers.set()
        self.resigned: Broadcast[int, None] = Broadcast()

    async def lead(self, holder: str, lifetime: timedelta, term: Term | None = None) -> Term | None:
        if self.is_away:
            raise StoreUnavailable("it is away")
        if term is not None:
            self.renewals += 1
            await self.answers.wait()
            return term if term == self.term else None
        won = self.elect() if self.term is None else None
        await self.answers.wait()
        return won

    def elect(self) -> Term:
        """Let a replica win."""
        self.terms += 1
        self.term = Term(self.terms, f"token {self.terms}")
        return self.term

    async def resign(self, term: Term) -> None:
        if term == self.term:
            self.free()

    def free(self) -> None:
        """Let the leader resign."""
        self.term = None
        self.resigned.publish(self.terms, None)

    def resignations(self) -> AbstractContextManager[AsyncIterator[object]]:
        return self.resigned.subscribe()


class Replica:
    """A replica that records when it begins and ends to track."""

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
            **{"clock": asyncio.get_running_loop().time, **options},
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
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(condition)

    async def leads(self) -> Tenure:
        await self.until(lambda: self.tenure)
        assert self.tenure is not None
        return self.tenure

    async def loses_leadership(self) -> None:
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


async def test_another_replica_leads_at_once_after_a_resignation(leases: Leases) -> None:
    leases.elect()
    async with running(Replica(leases, LONG)) as replica:
        await asyncio.sleep(0)  # it has campaigned, and waits
        leases.free()
        assert (await replica.leads()).term.number == 2


async def test_the_leader_renews_its_lease(leases: Leases) -> None:
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        await asyncio.sleep(2 * SHORT.total_seconds())
        assert replica.tenure is not None
        assert leases.renewals >= 3
        assert leases.terms == 1


async def test_a_replica_that_lost_leadership_stops_tracking_and_campaigns_again(leases: Leases) -> None:
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        another = leases.elect()
        await replica.loses_leadership()
        assert leases.term == another, "a resignation from an earlier term changes nothing"
        leases.free()
        assert (await replica.leads()).term.number == 3


async def test_a_leader_without_the_store_stops_with_its_lease_and_leads_again_later(
    leases: Leases,
) -> None:
    loop = asyncio.get_running_loop()
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        leases.is_away, away_at = True, loop.time()
        await replica.loses_leadership()
        assert loop.time() - away_at == pytest.approx(SHORT.total_seconds())
        leases.is_away = False
        leases.free()
        assert (await replica.leads()).term.number == 2


async def test_a_leader_whose_renewal_has_no_answer_gives_up_the_renewed_lease(leases: Leases) -> None:
    async with running(Replica(leases, SHORT)) as replica:
        await replica.leads()
        leases.answers.clear()
        await replica.loses_leadership()
        leases.answers.set()
        assert (await replica.leads()).term.number == 2


async def test_a_replica_that_is_stopped_during_an_election_gives_up_the_term_that_it_wins(
    leases: Leases,
) -> None:
    leases.answers.clear()
    async with running(Replica(leases, LONG)):
        await asyncio.sleep(1)  # it has asked for the lease
        asyncio.get_running_loop().call_later(1, leases.answers.set)
    assert (leases.terms, leases.term) == (1, None)


async def test_a_replica_that_is_stopped_during_an_election_waits_for_an_answer_for_one_lifetime(
    leases: Leases,
) -> None:
    loop = asyncio.get_running_loop()
    leases.answers.clear()
    async with running(Replica(leases, SHORT)):
        await asyncio.sleep(1)  # it has asked for the lease
        stopped_at = loop.time()
    assert loop.time() - stopped_at == pytest.approx(SHORT.total_seconds())


async def test_a_short_outage_of_the_store_does_not_end_the_term(leases: Leases) -> None:
    async with running(Replica(leases, timedelta(seconds=1))) as replica:
        await replica.leads()
        leases.is_away = True
        await asyncio.sleep(0.5)
        leases.is_away = False
        await asyncio.sleep(0.7)
        assert replica.tenure is not None
        assert leases.terms == 1


async def test_a_replica_that_slept_through_its_lease_does_nothing(
    leases: Leases,
) -> None:
    now = 0.0
    async with running(Replica(leases, LONG, clock=lambda: now)) as replica:
        tenure = await replica.leads()
        tenure.check()
        now = LONG.total_seconds()
        with pytest.raises(LeadershipLost, match="its lease could not be renewed in time"):
            tenure.check()


async def test_a_tracker_can_end_the_term_at_once(leases: Leases) -> None:
    async with running(Replica(leases, LONG)) as replica:
        tenure = await replica.leads()
        leases.elect()
        tenure.end("the store says so")
        await replica.loses_leadership()
        with pytest.raises(LeadershipLost, match="the store says so"):
            tenure.check()


async def test_a_replica_resigns_when_its_tracker_fails(
    leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(leases, SHORT)
    replica.crash = RuntimeError("a mistake")
    async with running(replica):
        await replica.until(lambda: leases.terms == 2 and replica.tenure)
    assert "the tracker ended unexpectedly" in caplog.text
    assert "a mistake" in caplog.text
