"""The copy of the queue, from which every replica answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.caller import Role
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.scheduling import mirror as module
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.mirror import Mirror, Seen
from job_tracker.scheduling.model import Gang, Plan, Promise, Reason, Reserve
from job_tracker.scheduling.notes import NoteKeeper
from job_tracker.scheduling.queue_view import QueueFilter, QueuePage, page_of
from job_tracker.scheduling.tree import Tree, pool_of, tree_of
from job_tracker.scheduling.waiting_view import explain
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE

TREE = tree_of(pool_of({}, 4), {})


class Replica:
    """A store, a mirror of its queue, and the work of a leader."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.now = NOON
        self.tree: Tree = TREE
        self.mirror = Mirror(store, lambda: self.tree, clock=lambda: self.now)
        self.board = Board(lambda: (self.tree.pool.flavors, self.tree.queues), 100.0)
        self.notes = NoteKeeper(store, None)

    async def submit(self, instances: int = 1, **changes: object) -> Job:
        wanted = spec(instances=instances, **changes)  # type: ignore[arg-type]
        return await self.store.submit(wanted, self.now, None, 100_000)

    async def admit(self, job: Job) -> Job:
        return await self.store.update(job.admitted(self.now))

    async def end(self, job: Job) -> None:
        await self.store.update(job.ended(Ending(JobState.CANCELLED, self.now), self.now))

    async def note(self, *reserved: Reserve) -> None:
        """Write a leader's decision."""
        self.notes.decided(Plan(reserved=reserved), self.board)
        await self.notes.write(self.board, with_usage=True)

    async def waiting(self) -> list[int]:
        self.mirror._fresh_until = 0.0
        return await self.mirror.ask(lambda seen: [gang.job_id for gang in _gangs(seen)])


def _gangs(seen: Seen) -> list[Gang]:
    waiting = seen.situation.snapshot.waiting
    return [gang for queue in sorted(waiting.queues()) for gang in waiting.in_order(queue)]


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    made = Replica(store)
    yield made
    await made.mirror.close()
    await store.close()


async def test_it_follows_the_queue(replica: Replica) -> None:
    jobs = [await replica.submit() for _ in range(3)]
    assert await replica.waiting() == [1, 2, 3]
    running = await replica.admit(jobs[0])
    await replica.end(jobs[1])
    await replica.submit()
    assert await replica.waiting() == [3, 4]
    await replica.end(running)
    await replica.store.delete([1])
    assert await replica.waiting() == [3, 4]
    assert await replica.mirror.ask(lambda seen: sorted(seen.labels)) == [3, 4]


async def test_questions_at_the_same_time_share_a_look(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FRESH_SECONDS", PATIENCE)
    await replica.submit()
    seen = await asyncio.gather(*(replica.mirror.ask(lambda seen: id(seen.situation)) for _ in range(20)))
    assert len(set(seen)) == 1


async def test_only_the_first_jobs_of_a_long_queue_are_copied(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_QUEUED", 10)
    monkeypatch.setattr(module, "_PAGE", 5)
    jobs = [await replica.submit() for _ in range(30)]
    assert await replica.waiting() == list(range(1, 11))
    await replica.submit()
    for job in jobs[:6]:
        await replica.end(job)
    assert await replica.waiting() == list(range(7, 21))
    behind = await explain(replica.mirror, caller_with(None), jobs[20], 14)
    assert behind.reasons == (Reason.ORDER,)


async def test_an_idle_copy_is_dropped_and_made_again(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)
    job = await replica.submit()
    assert await replica.waiting() == [1]
    async with asyncio.timeout(PATIENCE):
        while replica.mirror._changes is not None:
            await asyncio.sleep(0.01)
    await replica.end(job)
    await replica.submit()
    assert await replica.waiting() == [2]


async def test_a_job_that_is_admitted_during_the_copy_is_in_it(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await replica.submit()
    first_queued = replica.store.first_queued

    async def after_an_admission(limit: int, after: int = 0) -> Sequence[Job]:
        monkeypatch.undo()
        await replica.admit(job)
        return await first_queued(limit, after)

    monkeypatch.setattr(replica.store, "first_queued", after_an_admission)
    assert await replica.mirror.ask(lambda seen: sorted(seen.situation.snapshot.running)) == [job.id]


async def test_a_copy_that_caught_up_has_all_earlier_changes(replica: Replica) -> None:
    assert await replica.waiting() == []
    replica.mirror._fresh_until = asyncio.get_running_loop().time() + 0.1
    job = await replica.submit()
    await replica.mirror.catch_up(asyncio.get_running_loop().time())
    assert await replica.mirror.ask(lambda seen: sorted(seen.labels)) == [job.id]


async def test_a_store_that_is_away_fails_the_question_and_not_the_next_one(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> list[Job]:
        raise StoreUnavailable("the job store is away")

    await replica.submit()
    with monkeypatch.context() as broken:
        broken.setattr(replica.store, "live_jobs", fail)
        with pytest.raises(StoreUnavailable):
            await replica.waiting()
    assert await replica.waiting() == [1]


async def test_what_the_leader_has_noted_counts(replica: Replica) -> None:
    await replica.admit(await replica.submit(4))
    job = await replica.submit(4)
    at = NOON.timestamp() + 500
    await replica.note(Reserve(job.id, Promise(at, "default"), (Reason.RESERVED,), "A job runs longer."))
    found = await explain(replica.mirror, caller_with(None), job, 0)
    assert found.reasons == (Reason.RESERVED,)
    assert (found.promise, found.moved_because) == (Promise(at, "default"), "A job runs longer.")
    assert found.estimate is not None
    assert found.estimate.high <= at


async def test_without_room_no_start_is_promised_or_expected(replica: Replica) -> None:
    job = await replica.submit()
    await replica.note(Reserve(job.id, Promise(NOON.timestamp(), "default"), (Reason.ROOM,)))
    found = await explain(replica.mirror, caller_with(None), job, 0)
    assert (found.reasons, found.promise, found.estimate) == ((Reason.ROOM,), None, None)
    assert found.remedy is not None
    assert found.remedy.text.startswith("Free memory or disk space on the machine of the service.")


async def test_statuses_get_a_reason_only_after_a_leader_has_decided(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", PATIENCE)
    await replica.admit(await replica.submit(4))
    job = await replica.submit(4)
    assert await replica.mirror.outlook_of(job.id) is None
    await replica.note(Reserve(job.id, Promise(float("inf"), ""), (Reason.CAPACITY,)))
    replica.mirror._outlooks_at = float("-inf")
    replica.mirror._fresh_until = 0.0
    outlook = await replica.mirror.outlook_of(job.id)
    assert outlook is not None
    assert outlook.reason is Reason.CAPACITY


async def test_holders_that_a_caller_may_not_see_are_only_counted(replica: Replica) -> None:
    mine = await replica.admit(await replica.submit(1, project="vision"))
    await replica.admit(await replica.submit(3, project="speech"))
    job = await replica.submit(4, project="vision")
    found = await explain(replica.mirror, caller_with(Role.VIEWER, "vision"), job, 0)
    assert [each.job_id for each in found.holders] == [mine.id]
    assert (found.other_holders, found.other_instances) == (1, 3)


async def test_the_queue_shows_a_caller_only_its_own_jobs(replica: Replica) -> None:
    await replica.admit(await replica.submit(2, project="speech"))
    await replica.submit(4, project="speech")
    mine = await replica.submit(4, project="vision")
    page = await of_queue(replica, "vision")
    assert [(each.gang.job_id, each.place) for each in page.jobs] == [(mine.id, 2)]
    (queue,) = page.queues
    assert (queue.name, queue.waiting, queue.running, queue.instances) == ("default", 2, 1, 2)
    assert [(used.used, used.capacity, used.nominal, used.share) for used in queue.used] == [
        ("2", "4", None, 0.5)
    ]


async def of_queue(replica: Replica, project: str) -> QueuePage:
    caller = caller_with(Role.VIEWER, project)
    return await replica.mirror.ask(lambda seen: page_of(seen, caller, QueueFilter(), 10, None))


async def test_learned_run_times_are_part_of_the_answer(replica: Replica) -> None:
    for _ in range(3):
        job = await replica.admit(await replica.submit())
        job = await replica.store.update(job.running(replica.now))
        replica.now += timedelta(seconds=100)
        await replica.end(job)
    job = await replica.submit(4)
    found = await explain(replica.mirror, caller_with(None), job, 0)
    assert found.expected is not None
    assert (found.expected.median, found.source.value) == (100, "learned")
