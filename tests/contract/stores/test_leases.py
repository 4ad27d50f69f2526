"""What every store owes to replicas: one of them leads, and who led before writes no more."""

import asyncio
import time
from datetime import timedelta

import pytest

from job_tracker.domain.errors import LeadershipLost
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.store.base import Store
from job_tracker.store.lease import Term
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

LONG = timedelta(minutes=1)
SHORT = timedelta(milliseconds=50)


async def won(store: Store, lifetime: timedelta = LONG) -> Term:
    """A term, as soon as the lease can be had."""
    async with asyncio.timeout(5):
        while (term := await store.lead("me", lifetime)) is None:
            await asyncio.sleep(0.01)
    return term


async def deposed(store: Store) -> Term:
    """A term that another one came after."""
    term = await won(store, SHORT)
    await won(store)
    return term


async def submit(store: Store) -> Job:
    return await store.submit(spec(), NOON, None, 10)


async def test_one_leads_and_nobody_else(store: Store) -> None:
    terms = await asyncio.gather(*(store.lead(f"replica {n}", LONG) for n in range(20)))
    assert sum(term is not None for term in terms) == 1
    assert await store.lead("another", LONG) is None


async def test_each_term_is_new(store: Store) -> None:
    terms = [await won(store, SHORT) for _ in range(3)]
    assert len({term.token for term in terms}) == 3
    assert [term.number for term in terms] == [1, 2, 3]


async def test_a_lease_that_is_renewed_is_not_had_by_others(store: Store) -> None:
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


async def test_a_lease_that_is_over_is_renewed_if_nobody_has_taken_it(store: Store) -> None:
    term = await won(store, timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    assert await store.lead("me", LONG, term) == term
    assert await store.lead("another", LONG) is None


async def test_a_term_that_another_came_after_is_not_renewed(store: Store) -> None:
    term = await deposed(store)
    assert await store.lead("me", LONG, term) is None


async def test_who_resigns_makes_room_at_once(store: Store) -> None:
    term = await won(store)
    with store.resignations() as resignations:
        await store.resign(term)
        await asyncio.wait_for(anext(resignations), 5)
    following = await store.lead("another", LONG)
    assert following is not None
    assert following.number == term.number + 1
    assert await store.lead("me", LONG, term) is None


async def test_a_resignation_from_an_earlier_term_changes_nothing(store: Store) -> None:
    await store.resign(await deposed(store))
    assert await store.lead("another", LONG) is None


async def test_the_leader_writes(store: Store) -> None:
    job, term = await submit(store), await won(store)
    job = await store.update(job.admitted(NOON), term=term)
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON), term=term)
    await store.delete([job.id], term=term)
    assert await store.finished_before(NOON + LONG, 10) == []


async def test_a_leader_whose_lease_is_over_writes_until_it_is_taken(store: Store) -> None:
    job, term = await submit(store), await won(store, timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    assert (await store.update(job.admitted(NOON), term=term)).state is JobState.LAUNCHING


async def test_who_led_before_writes_nothing(store: Store) -> None:
    live, ended = await store.update((await submit(store)).admitted(NOON)), await submit(store)
    ended = await store.update(ended.ended(Ending(JobState.CANCELLED, NOON), NOON))
    term = await deposed(store)
    for write in (
        store.update(live.running(NOON), term=term),
        store.delete([ended.id], term=term),
    ):
        with pytest.raises(LeadershipLost, match="term 1 is over"):
            await write
    assert await store.get(live.id) == live
    assert await store.get(ended.id) == ended


async def test_who_has_resigned_writes_nothing(store: Store) -> None:
    job, term = await submit(store), await won(store)
    await store.resign(term)
    with pytest.raises(LeadershipLost):
        await store.update(job.admitted(NOON), term=term)
    assert await store.get(job.id) == job


async def test_a_refused_write_does_not_spoil_those_beside_it(store: Store) -> None:
    jobs, term = [await submit(store) for _ in range(3)], await deposed(store)
    results = await asyncio.gather(
        store.update(jobs[0].admitted(NOON)),
        store.update(jobs[1].admitted(NOON), term=term),
        store.update(jobs[2].admitted(NOON)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Job, LeadershipLost, Job]


async def test_users_write_whoever_leads(store: Store) -> None:
    await won(store)
    job = await submit(store)
    await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))


async def test_who_led_before_a_restart_writes_nothing(store: Store, reopen: Reopen) -> None:
    job, term = await submit(store), await won(store, SHORT)
    store = await reopen()
    await won(store)
    with pytest.raises(LeadershipLost):
        await store.update(job.admitted(NOON), term=term)
