"""The contract of stores: one replica leads, and former leaders cannot write."""

import asyncio
import time
from datetime import timedelta

import pytest

from job_tracker.domain.errors import LeadershipLost
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.store.base import Store
from job_tracker.store.lease import Term
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from tests.support.stores import Reopen

LONG = timedelta(minutes=1)
SHORT = timedelta(milliseconds=50)


async def won(store: Store, lifetime: timedelta = LONG) -> Term:
    """Win the lease as soon as it is free, and return the term."""
    async with asyncio.timeout(PATIENCE):
        while (term := await store.lead("me", lifetime)) is None:
            await asyncio.sleep(0.01)
    return term


async def ended_term(store: Store) -> Term:
    """Return a term that has a successor."""
    term = await won(store, SHORT)
    await won(store)
    return term


async def submit(store: Store) -> Job:
    return await store.submit(spec(), NOON, None, 10)


async def test_only_one_replica_leads(store: Store) -> None:
    terms = await asyncio.gather(*(store.lead(f"replica {n}", LONG) for n in range(20)))
    assert sum(term is not None for term in terms) == 1
    assert await store.lead("another", LONG) is None


async def test_each_term_is_new(store: Store) -> None:
    terms = [await won(store, SHORT) for _ in range(3)]
    assert len({term.token for term in terms}) == 3
    assert [term.number for term in terms] == [1, 2, 3]


async def test_a_renewed_lease_is_not_given_to_others(store: Store) -> None:
    lifetime, renewals = timedelta(milliseconds=300), 0
    begun = time.monotonic()
    term = await won(store, lifetime)
    while renewals < 8:
        await asyncio.sleep(0.05)
        before, begun = begun, time.monotonic()
        renewed, taken = await store.lead("me", lifetime, term), await store.lead("another", SHORT)
        if time.monotonic() > before + lifetime.total_seconds():  # so slow that the lease may have been over
            begun, renewals = time.monotonic(), 0
            term = await won(store, lifetime)
        else:
            assert (renewed, taken) == (term, None)
            renewals += 1


async def test_a_lease_that_is_over_can_be_renewed_until_another_takes_it(store: Store) -> None:
    term = await won(store, timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    assert await store.lead("me", LONG, term) == term
    assert await store.lead("another", LONG) is None


async def test_a_term_with_a_successor_is_not_renewed(store: Store) -> None:
    term = await ended_term(store)
    assert await store.lead("me", LONG, term) is None


async def test_a_resignation_frees_the_lease_at_once(store: Store) -> None:
    term = await won(store)
    with store.resignations() as resignations:
        await store.resign(term)
        await asyncio.wait_for(anext(resignations), PATIENCE)
    following = await store.lead("another", LONG)
    assert following is not None
    assert following.number == term.number + 1
    assert await store.lead("me", LONG, term) is None


async def test_a_resignation_from_an_earlier_term_changes_nothing(store: Store) -> None:
    await store.resign(await ended_term(store))
    assert await store.lead("another", LONG) is None


async def test_the_leader_writes(store: Store) -> None:
    job, term = await submit(store), await won(store)
    job = await store.update(job.admitted(NOON), term=term)
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON), term=term)
    await store.delete([job.id], term=term)
    assert await store.finished_before(NOON + LONG, 10) == []


async def test_a_leader_whose_lease_is_over_may_write_until_another_takes_it(store: Store) -> None:
    job, term = await submit(store), await won(store, timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    assert (await store.update(job.admitted(NOON), term=term)).state is JobState.LAUNCHING


async def test_a_former_leader_cannot_write(store: Store) -> None:
    live, ended = await store.update((await submit(store)).admitted(NOON)), await submit(store)
    ended = await store.update(ended.ended(Ending(JobState.CANCELLED, NOON), NOON))
    term = await ended_term(store)
    for write in (
        store.update(live.running(NOON), term=term),
        store.delete([ended.id], term=term),
    ):
        with pytest.raises(LeadershipLost, match="term 1 is over"):
            await write
    assert await store.get(live.id) == live
    assert await store.get(ended.id) == ended


async def test_a_leader_that_resigned_cannot_write(store: Store) -> None:
    job, term = await submit(store), await won(store)
    await store.resign(term)
    with pytest.raises(LeadershipLost):
        await store.update(job.admitted(NOON), term=term)
    assert await store.get(job.id) == job


async def test_a_refused_write_does_not_affect_others_in_its_batch(store: Store) -> None:
    jobs, term = [await submit(store) for _ in range(3)], await ended_term(store)
    results = await asyncio.gather(
        store.update(jobs[0].admitted(NOON)),
        store.update(jobs[1].admitted(NOON), term=term),
        store.update(jobs[2].admitted(NOON)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Job, LeadershipLost, Job]


async def test_users_can_write_whichever_replica_leads(store: Store) -> None:
    await won(store)
    job = await submit(store)
    await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))


async def test_the_leader_before_a_restart_cannot_write(store: Store, reopen: Reopen) -> None:
    job, term = await submit(store), await won(store, SHORT)
    store = await reopen()
    await won(store)
    with pytest.raises(LeadershipLost):
        await store.update(job.admitted(NOON), term=term)
