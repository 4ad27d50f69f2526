"""The contract of stores: queues, allocations, and notes of scheduling."""

import asyncio
import re
from datetime import timedelta

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LeadershipLost, QueueFull
from job_tracker.domain.job import Job, JobState, Preemption, PreemptionReason
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.store.base import Store
from job_tracker.store.queue import Tally
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

_CRASHED = Diagnosis(category=Category.CRASHED, summary="It crashed.", resolution="-", retryable=True)


async def submit(store: Store, queue: str = "default", instances: int = 1) -> Job:
    wanted = spec(
        instances=instances,
        queue=queue,
        elastic=Elastic(min_instances=1),
        retry=RetryPolicy(max_attempts=2),
    )
    return await store.submit(wanted, NOON, None, 1000)


async def test_a_position_counts_jobs_of_the_same_queue(store: Store, reopen: Reopen) -> None:
    first, other, second, third = [
        await submit(store, queue) for queue in ("default", "research", "default", "default")
    ]
    assert [await store.queue_position(job) for job in (first, other, second, third)] == [0, 0, 1, 2]
    assert await store.queued_by_queue() == {"default": 3, "research": 1}
    await store.update(first.admitted(NOON))
    await store.update(other.admitted(NOON))
    assert [await store.queue_position(job) for job in (second, third)] == [0, 1]
    store = await reopen()
    assert await store.queued_by_queue() == {"default": 2}
    assert [await store.queue_position(job) for job in (second, third)] == [0, 1]


async def test_submissions_at_the_same_moment_keep_the_limit_of_their_queue(
    store: Store, reopen: Reopen
) -> None:
    async def limited(queue: str, most: int | None) -> Job:
        wanted = spec(queue=queue, retry=RetryPolicy(max_attempts=2))
        return await store.submit(wanted, NOON, None, 1000, max_queued_in_queue=most)

    await limited("default", None)
    asked = (limited("research", 3) for _ in range(10))
    results = await asyncio.gather(*asked, return_exceptions=True)
    accepted = [each for each in results if isinstance(each, Job)]
    refused = [each for each in results if isinstance(each, QueueFull)]
    assert (len(accepted), len(refused)) == (3, 7)
    message = "3 jobs of queue research are queued, which is the limit (max_queued of the queue); "
    assert {str(each) for each in refused} == {f"{message}try again when some of them have started"}
    assert await store.queued_by_queue() == {"default": 1, "research": 3}
    await limited("default", 2)
    with pytest.raises(QueueFull, match=re.escape("0 jobs of queue closed are queued")):
        await limited("closed", 0)

    launching = await store.update(accepted[0].admitted(NOON))
    store = await reopen()
    await limited("research", 3)
    with pytest.raises(QueueFull):
        await limited("research", 3)
    failed = await store.update(launching.failed(_CRASHED, NOON))
    assert failed.ending is not None
    waiting = await store.update(failed.ended(failed.ending, NOON))
    await store.update(waiting.queued_again(NOON))
    assert (await store.queued_by_queue())["research"] == 4, "a job that was accepted comes back all the same"


async def test_the_queue_is_read_in_pages(store: Store) -> None:
    jobs = [await submit(store) for _ in range(70)]
    assert await store.first_queued(40) == jobs[:40]
    assert await store.first_queued(40, after=jobs[39].id) == jobs[40:]
    assert await store.first_queued(10, after=jobs[-1].id) == []


async def test_an_allocation_is_stored_with_the_attempt(store: Store, reopen: Reopen) -> None:
    job = await submit(store, instances=4)
    wanted = Allocation(flavor="a100", trainers=3, nodes=("one", "one", "two"))
    launching = await store.update(job.admitted(NOON, wanted))
    store = await reopen()
    assert await store.get(job.id) == launching
    assert launching.allocation == wanted
    assert launching.instances == 3
    running = await store.update(launching.running(NOON))
    failed = running.failed(_CRASHED, NOON)
    assert failed.ending is not None
    waiting = await store.update((await store.update(failed)).ended(failed.ending, NOON))
    assert waiting.allocation == wanted
    again = await store.update(waiting.queued_again(NOON + timedelta(hours=1)))
    assert (again.state, again.allocation) == (JobState.QUEUED, None)
    assert await (await reopen()).get(job.id) == again


async def test_tallies_count_the_instances_of_allocations(store: Store) -> None:
    job = await submit(store, instances=4)
    launching = await store.update(job.admitted(NOON, Allocation(trainers=2)))
    tallies = await store.tallies()
    assert (tallies[JobState.QUEUED], tallies[JobState.LAUNCHING]) == (Tally(), Tally(1, 2))
    await store.update(launching.running(NOON))
    tallies = await store.tallies()
    assert (tallies[JobState.LAUNCHING], tallies[JobState.RUNNING]) == (Tally(), Tally(1, 2))


async def test_notes_are_kept_by_kind_and_key(store: Store, reopen: Reopen) -> None:
    assert await store.scheduling_notes("usage") == {}
    assert await store.scheduling_note("usage", "default") is None
    await store.keep_scheduling_notes(
        {("usage", "default"): "1", ("usage", "research"): "2", ("job", "default"): '{"über": "ok"}'}
    )
    store = await reopen()
    assert await store.scheduling_notes("usage") == {"default": "1", "research": "2"}
    assert await store.scheduling_note("job", "default") == '{"über": "ok"}'
    await store.keep_scheduling_notes(
        {("usage", "default"): None, ("usage", "research"): "3", ("job", "x"): None, ("usage", "empty"): ""}
    )
    assert await store.scheduling_notes("usage") == {"research": "3"}
    assert await store.scheduling_notes("job") == {"default": '{"über": "ok"}'}


async def test_many_notes_are_written_at_once(store: Store) -> None:
    await store.keep_scheduling_notes({("job", str(n)): f"note {n}" for n in range(2500)})
    assert len(await store.scheduling_notes("job")) == 2500


async def test_a_former_leader_writes_no_notes(store: Store) -> None:
    old = await store.lead("one", timedelta(minutes=1))
    assert old is not None
    await store.resign(old)
    new = await store.lead("two", timedelta(minutes=1))
    with pytest.raises(LeadershipLost):
        await store.keep_scheduling_notes({("usage", "default"): "old"}, term=old)
    await store.keep_scheduling_notes({("usage", "default"): "new"}, term=new)
    assert await store.scheduling_notes("usage") == {"default": "new"}


@pytest.mark.parametrize(("trainers", "counted"), [(0, 1), (1, 0)], ids=["waits", "goes on in another size"])
async def test_a_preempted_job_is_queued_where_it_stood(
    store: Store, reopen: Reopen, trainers: int, counted: int
) -> None:
    first, second = await submit(store, instances=4), await submit(store)
    admitted = await store.update(first.admitted(NOON, Allocation(trainers=2)))
    assert (await store.tallies())[JobState.LAUNCHING] == Tally(1, 2)
    running = await store.update(admitted.running(NOON))
    why = Preemption(
        by_job=9,
        why=PreemptionReason.RECLAIM,
        by_attempt=1,
        by_project="other",
        trainers=trainers,
        flavor="a100",
    )
    decided = await store.update(running.preempted(why, NOON))
    store = await reopen()
    assert await store.get(first.id) == decided
    assert decided.ending is not None
    await store.update(decided.ended(decided.ending, NOON))
    store = await reopen()
    back = await store.get(first.id)
    assert (back.state, back.preemption, back.preemptions) == (JobState.QUEUED, why, counted)
    assert [await store.queue_position(each) for each in (back, second)] == [0, 1]
    assert [job.id for job in await store.first_queued(9)] == [first.id, second.id]
    counts = await store.tallies()
    assert (counts[JobState.QUEUED], counts[JobState.RUNNING]) == (Tally(2, 5), Tally(0, 0))
    again = await store.update(back.admitted(NOON))
    assert (again.attempt, again.preemptions, again.preemption) == (2, counted, None)
