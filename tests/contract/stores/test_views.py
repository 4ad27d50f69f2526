"""The contract of stores: the queue, lists, counts, changes and deletion."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.domain.errors import JobNotFound, StaleJob
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.policies import Deadlines
from job_tracker.store.base import Store
from job_tracker.store.jobs import LARGEST_LIST, JobFilter, RequestKey
from job_tracker.store.queue import Tally
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen


async def submit(store: Store, **changes: object) -> Job:
    return await store.submit(spec(**changes), NOON, None, 1_000_000)  # type: ignore[arg-type]


async def end(store: Store, job: Job, after: timedelta = timedelta(0)) -> Job:
    ending = Ending(JobState.CANCELLED, NOON + after)
    return await store.update(job.ended(ending, NOON + after))


async def test_the_queue_is_first_in_first_out(store: Store, reopen: Reopen) -> None:
    assert await store.first_queued(1) == []
    jobs = [await submit(store) for _ in range(3)]
    assert await store.first_queued(1) == jobs[:1]
    assert await store.first_queued(2) == jobs[:2]
    assert await store.first_queued(9) == jobs
    await store.update(jobs[0].admitted(NOON))
    await end(store, jobs[1])
    assert await (await reopen()).first_queued(1) == [jobs[2]]


async def test_a_job_that_returns_has_its_old_position_in_the_queue(store: Store) -> None:
    jobs = [await submit(store) for _ in range(3)]
    job = await store.update(jobs[1].admitted(NOON))
    job = await store.update(replace(job, state=JobState.BACKOFF))
    assert [await store.queue_position(jobs[n]) for n in (0, 2)] == [0, 1]
    job = await store.update(replace(job, state=JobState.QUEUED))
    assert [await store.queue_position(each) for each in jobs] == [0, 1, 2]
    tallies = await store.tallies()
    assert (tallies[JobState.QUEUED], tallies[JobState.BACKOFF]) == (Tally(3, 3), Tally())
    await store.update(jobs[0].admitted(NOON))
    assert await store.first_queued(1) == [job]
    await store.update(job.admitted(NOON))
    assert await store.queue_position(jobs[2]) == 0


async def test_due_jobs_are_ordered_by_time(store: Store, reopen: Reopen) -> None:
    assert await store.next_due(10) == []
    waits = [timedelta(seconds=n) for n in (30, 10, 20)]
    jobs = [await submit(store, deadlines=Deadlines(queue=wait, run=wait)) for wait in waits]
    await submit(store)
    due = [(jobs[1].id, NOON + waits[1]), (jobs[2].id, NOON + waits[2]), (jobs[0].id, NOON + waits[0])]
    assert await store.next_due(10) == due
    assert await store.next_due(2) == due[:2]
    launching = await store.update(jobs[1].admitted(NOON))
    assert await store.next_due(10) == due[1:]
    await store.update(launching.running(NOON + timedelta(hours=1)))
    await end(store, jobs[2])
    expected = [due[2], (jobs[1].id, NOON + timedelta(hours=1) + waits[1])]
    assert await store.next_due(10) == expected
    assert await (await reopen()).next_due(10) == expected


@pytest.mark.parametrize("count", [3, 700])
async def test_a_position_counts_the_queued_jobs_before_it(store: Store, count: int) -> None:
    jobs = await asyncio.gather(*(submit(store) for _ in range(count)))
    jobs.sort(key=lambda job: job.id)
    assert [await store.queue_position(job) for job in jobs] == list(range(count))
    leaving = jobs[::3]
    await asyncio.gather(*(store.update(job.admitted(NOON)) for job in leaving))
    left = [job for job in jobs if job not in leaving]
    assert [await store.queue_position(job) for job in left] == list(range(len(left)))


async def test_tallies_follow_every_move(store: Store, reopen: Reopen) -> None:
    assert await store.tallies() == dict.fromkeys(JobState, Tally())
    jobs = [await submit(store, instances=size) for size in (1, 2, 4, 8)]
    running = await store.update((await store.update(jobs[1].admitted(NOON))).running(NOON))
    await store.update(running.decided(Ending(JobState.FAILED, NOON)))
    await store.update(jobs[2].admitted(NOON))
    ended = await end(store, jobs[3])
    expected = {
        **dict.fromkeys(JobState, Tally()),
        JobState.QUEUED: Tally(1, 1),
        JobState.RUNNING: Tally(1, 2),
        JobState.LAUNCHING: Tally(1, 4),
        JobState.CANCELLED: Tally(1, 8),
    }
    assert await store.tallies() == expected
    store = await reopen()
    assert await store.tallies() == expected
    await store.delete([ended.id])
    assert (await store.tallies())[JobState.CANCELLED] == Tally()


async def test_live_jobs_are_launching_or_running(store: Store) -> None:
    jobs = [await submit(store) for _ in range(4)]
    launching = await store.update(jobs[1].admitted(NOON))
    running = await store.update((await store.update(jobs[2].admitted(NOON))).running(NOON))
    await end(store, jobs[3])
    assert {job.id for job in await store.live_jobs()} == {launching.id, running.id}


async def test_lists_are_newest_first_and_come_in_pages(store: Store) -> None:
    jobs = [await submit(store) for _ in range(5)]
    first = await store.list_jobs(JobFilter(), limit=2)
    assert ([job.id for job in first.jobs], first.has_more) == ([5, 4], True)
    second = await store.list_jobs(JobFilter(), limit=3, before=first.jobs[-1].id)
    assert (list(second.jobs), second.has_more) == ([jobs[2], jobs[1], jobs[0]], False)


async def test_a_list_of_large_jobs_is_cut(store: Store) -> None:
    large = {"NOTE": "x" * (LARGEST_LIST // 10)}
    for number in range(25):
        await submit(store, parameters=large, algorithm="even" if number % 2 == 0 else "odd")
    for where, wanted in ((JobFilter(), range(25, 0, -1)), (JobFilter(algorithm="even"), range(25, 0, -2))):
        ids: list[int] = []
        listing = await store.list_jobs(where, limit=100)
        while listing.has_more:
            assert 5 <= len(listing.jobs) <= 10
            ids += [job.id for job in listing.jobs]
            listing = await store.list_jobs(where, limit=100, before=ids[-1])
        assert ids + [job.id for job in listing.jobs] == list(wanted)


async def test_a_list_has_at_least_one_job(store: Store) -> None:
    for _ in range(2):
        await submit(store, parameters={"NOTE": "x" * LARGEST_LIST})
    listing = await store.list_jobs(JobFilter(), limit=100)
    assert ([job.id for job in listing.jobs], listing.has_more) == ([2], True)


async def test_lists_are_filtered_by_state_name_and_algorithm(store: Store) -> None:
    await submit(store, name="alpha", algorithm="a")
    await submit(store, name="alphabet", algorithm="b")
    await end(store, await submit(store, name="beta", algorithm="a"))
    await submit(store, name="al%_", algorithm="a")

    async def ids(where: JobFilter) -> list[int]:
        return [job.id for job in (await store.list_jobs(where, limit=10)).jobs]

    assert await ids(JobFilter(name_prefix="alpha")) == [2, 1]
    assert await ids(JobFilter(name_prefix="al%")) == [4]
    assert await ids(JobFilter(algorithm="a")) == [4, 3, 1]
    assert await ids(JobFilter(states=frozenset({JobState.CANCELLED}))) == [3]
    both = frozenset({JobState.CANCELLED, JobState.QUEUED})
    assert await ids(JobFilter(states=both, algorithm="a", name_prefix="a")) == [4, 1]
    assert await ids(JobFilter(name_prefix="x")) == []


async def test_changes_reach_their_subscribers(store: Store) -> None:
    with store.changes() as everything, store.changes(2) as of_two:
        first, second = await submit(store), await submit(store)
        assert [await anext(everything), await anext(everything)] == [
            (first.id, JobState.QUEUED),
            (second.id, JobState.QUEUED),
        ]
        await store.update(first.admitted(NOON))
        second = await store.update(second.admitted(NOON))
        assert await anext(of_two) == (second.id, JobState.LAUNCHING)


async def test_a_writer_only_sees_the_changes_of_others(store: Store) -> None:
    first, second = await submit(store), await submit(store)
    with store.changes() as own, store.changes() as of_others, store.changes(first.id) as of_first:
        first = await store.update(first.admitted(NOON), by=own)
        assert await anext(of_others) == await anext(of_first) == (first.id, JobState.LAUNCHING)
        await store.update(first.running(NOON))
        with pytest.raises(StaleJob):
            await store.update(first.running(NOON), by=own)
        await store.update(second.admitted(NOON), by=own)
        assert await anext(own) == (first.id, JobState.RUNNING)
        third = await submit(store)
        assert await anext(own) == (third.id, JobState.QUEUED)


async def test_a_repeated_submission_is_not_a_change(store: Store) -> None:
    key = RequestKey("k", b"digest")
    await store.submit(spec(), NOON, key, 10)
    with store.changes() as changes:
        await store.submit(spec(), NOON, key, 10)
        job = await submit(store)
        assert await anext(changes) == (job.id, JobState.QUEUED)


async def test_old_ended_jobs_are_found_and_deleted(store: Store, reopen: Reopen) -> None:
    jobs = [await submit(store) for _ in range(4)]
    for age, job in enumerate(jobs[:3]):
        await end(store, job, after=timedelta(hours=-age))
    old = await store.finished_before(NOON, limit=10)
    assert [job.id for job in old] == [3, 2]
    assert [job.id for job in await store.finished_before(NOON, limit=1)] == [3]
    await store.delete([job.id for job in old] + [4, 99])
    with pytest.raises(JobNotFound):
        await store.get(3)
    assert (await store.get(4)).state is JobState.QUEUED
    assert (await submit(await reopen())).id == 5


async def test_the_id_of_a_deleted_job_is_not_reused(store: Store, reopen: Reopen) -> None:
    job = await end(store, await submit(store))
    await store.delete([job.id])
    assert (await submit(await reopen())).id == job.id + 1
