"""Admission of queued jobs: the snapshot for the planner, and its decisions."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason
from job_tracker.domain.policies import Elastic
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import (
    Admit,
    Flavor,
    Plan,
    Preempt,
    Promise,
    Queue,
    Reason,
    Refuse,
    Snapshot,
)
from job_tracker.scheduling.notes import NoteKeeper, reservation_of
from job_tracker.scheduling.planner import plan
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.admitting import Admitting
from tests.support.jobs import NOON, spec

CAPACITY = 40


@dataclass(frozen=True)
class Seen:
    """The content of a snapshot."""

    waiting: list[int]
    running: set[int]
    is_open: bool


class Cluster:
    """A store with jobs, and their admission by a leader."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.passes: list[Seen] = []
        self.woken = 0
        self.refuses: dict[int, Exception] = {}
        self.cancelled_meanwhile: set[int] = set()
        self.elastic_size = 0
        self.queue = "default"
        self.expected: timedelta | None = None
        self.answer: Plan | None = None
        self.now = NOON
        self.settled: list[int] = []
        self.passed = 0.0
        self.news: list[tuple[int, str, str]] = []
        self.lead()

    def lead(self) -> None:
        """Begin as a new leader, which has nothing in memory."""
        self.board = Board(lambda: _POOL, half_life=100.0)
        self.notes = NoteKeeper(self.store, None)
        self.admitting = Admitting(
            *(self.store, self._plan, self.board, self.notes, self._save, self._wake),
            *(lambda: None, self._clock, lambda: self.passed, self._waits, self.settled.append),
        )

    def _waits(self, job: Job, code: str, sentence: str) -> None:
        self.news.append((job.id, code, sentence))

    def pass_time(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.passed += timedelta(**time).total_seconds()

    def set_clock(self, **by: float) -> None:
        self.now += timedelta(**by)

    @property
    def used(self) -> float:
        """The use of the default queue, in seconds of instances."""
        self.board.advance(self.now.timestamp())
        return self.board.usage["default"].amounts["default"]["instances"]

    async def submit(self, *sizes: int) -> list[int]:
        return sorted(job.id for job in await asyncio.gather(*map(self._submit, sizes)))

    async def states(self, *job_ids: int) -> list[JobState]:
        return [(await self.store.get(job_id)).state for job_id in job_ids]

    async def end(self, *job_ids: int) -> None:
        await asyncio.gather(*map(self._end, job_ids))

    def wakes(self, job_id: int, state: JobState) -> bool:
        """Return whether admission wakes when the job enters this state."""
        before = self.woken
        self.admitting.job_changed(job_id, state)
        return self.woken > before

    async def _end(self, job_id: int) -> None:
        job = await self.store.get(job_id)
        await self.store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))
        self.admitting.job_changed(job_id, JobState.CANCELLED)

    async def _submit(self, size: int) -> Job:
        elastic = Elastic(min_instances=1) if self.elastic_size else None
        wanted = spec(instances=size, elastic=elastic, queue=self.queue, expected=self.expected)
        job = await self.store.submit(wanted, NOON, None, 100_000)
        self.admitting.job_changed(job.id, job.state)
        return job

    def _plan(self, snapshot: Snapshot, now: float) -> Plan:
        queues = snapshot.waiting.queues()
        waiting = [gang.job_id for queue in queues for gang in snapshot.waiting.in_order(queue)]
        self.passes.append(Seen(waiting, set(snapshot.running), snapshot.is_open))
        if self.answer is not None:
            answer, self.answer = self.answer, None
            return answer
        if self.elastic_size:
            return Plan(tuple(Admit(job_id, Allocation(trainers=self.elastic_size)) for job_id in waiting))
        return plan(snapshot, now)

    async def _save(self, before: Job, after: Job) -> Job:
        if before.id in self.refuses:
            raise self.refuses.pop(before.id)
        if before.id in self.cancelled_meanwhile:
            self.cancelled_meanwhile.remove(before.id)
            await self.end(before.id)
        return await self.store.update(after)

    def _wake(self, pause: timedelta) -> None:
        self.woken += 1

    def _clock(self) -> datetime:
        return self.now


_POOL = ((Flavor(name="default", capacity={"instances": CAPACITY}),), {"default": Queue(name="default")})
QUEUED, LAUNCHING = JobState.QUEUED, JobState.LAUNCHING


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield Cluster(store)
    await store.close()


async def test_one_pass_admits_all_jobs_that_fit(cluster: Cluster) -> None:
    jobs = await cluster.submit(*[1] * 100)
    await cluster.admitting.run()
    assert cluster.passes == [Seen(jobs, set(), is_open=True)]
    assert await cluster.states(*jobs) == [LAUNCHING] * 40 + [QUEUED] * 60
    await cluster.admitting.run()
    assert cluster.passes[1] == Seen(jobs[40:], set(jobs[:40]), is_open=True)


async def test_a_new_leader_reads_the_whole_queue_in_pages(cluster: Cluster) -> None:
    await cluster.submit(CAPACITY)
    await cluster.admitting.run()
    waiting = await cluster.submit(*[1] * 2100)
    cluster.lead()
    await cluster.admitting.run()
    assert cluster.passes[-1] == Seen(waiting, {1}, is_open=True)


async def test_jobs_that_change_while_a_leader_reads_the_queue_are_read_again(cluster: Cluster) -> None:
    running, cancelled, waiting = await cluster.submit(CAPACITY, 1, 1)
    cluster.lead()
    cluster.cancelled_meanwhile.add(running)
    await cluster.admitting.run()
    assert cluster.passes[-1].waiting[0] == cancelled, "it was planned without the cancelled one"
    assert await cluster.states(running, cancelled, waiting) == [JobState.CANCELLED, LAUNCHING, LAUNCHING]


async def test_changes_that_free_nothing_do_not_wake_admission(cluster: Cluster) -> None:
    running, waiting = await cluster.submit(30, 20)
    await cluster.admitting.run()
    assert await cluster.states(running, waiting) == [LAUNCHING, QUEUED]
    assert not cluster.wakes(waiting, QUEUED)
    assert not cluster.wakes(running, JobState.RUNNING)
    assert not cluster.wakes(99, JobState.FAILED)
    assert cluster.wakes(running, QUEUED), "it comes back"
    await cluster.admitting.run()
    assert cluster.wakes(running, JobState.SUCCEEDED)


async def test_a_job_that_no_longer_fits_waits_and_says_so_and_later_jobs_start(cluster: Cluster) -> None:
    large, small = await cluster.submit(CAPACITY + 1, 1)
    await cluster.admitting.run()
    assert await cluster.states(large, small) == [QUEUED, LAUNCHING]
    await cluster.admitting.keep_notes()
    kept = await reservation_of(cluster.store, large)
    assert kept is not None
    assert kept.reasons == (Reason.LOST_CAPACITY,)
    assert kept.promise.at == math.inf


async def test_a_job_that_the_planner_refuses_fails(cluster: Cluster) -> None:
    diagnosis = Diagnosis(category=Category.EXCEEDS_CAPACITY, summary="Too large.", resolution="-")
    (job_id,) = await cluster.submit(1)
    cluster.answer = Plan(refused=(Refuse(job_id, diagnosis),))
    await cluster.admitting.run()
    job = await cluster.store.get(job_id)
    assert (job.state, job.diagnosis) == (JobState.FAILED, diagnosis)


async def test_the_next_job_starts_in_place_of_one_that_was_cancelled_meanwhile(cluster: Cluster) -> None:
    cancelled, other = await cluster.submit(CAPACITY, CAPACITY)
    cluster.cancelled_meanwhile.add(cancelled)
    await cluster.admitting.run()
    assert await cluster.states(cancelled, other) == [JobState.CANCELLED, LAUNCHING]


async def test_an_unavailable_store_ends_the_pass_and_the_next_one_repeats_it(cluster: Cluster) -> None:
    first, second = await cluster.submit(1, 1)
    cluster.refuses[first] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await cluster.admitting.run()
    await cluster.admitting.run()
    assert await cluster.states(first, second) == [LAUNCHING, LAUNCHING]


async def test_thousands_of_cancelled_jobs_leave_the_queue_at_once(cluster: Cluster) -> None:
    running, *waiting = await cluster.submit(CAPACITY, *[1] * 2000)
    await cluster.admitting.run()
    before = len(cluster.passes)
    await cluster.end(*waiting[:-1], running)
    await cluster.admitting.run()
    assert len(cluster.passes) == before + 1
    assert await cluster.states(waiting[-1]) == [LAUNCHING]


async def test_a_missed_change_is_repaired_by_two_looks(cluster: Cluster) -> None:
    (running,) = await cluster.submit(CAPACITY)
    await cluster.admitting.run()
    missed = await cluster.store.submit(spec(), NOON, None, 10)
    await cluster.end(running)
    for _ in range(2):
        assert await cluster.states(missed.id) == [QUEUED]
        await cluster.admitting.verify()
    await cluster.admitting.run()
    assert await cluster.states(missed.id) == [LAUNCHING]


async def test_an_elastic_job_runs_with_its_allocation(cluster: Cluster) -> None:
    cluster.elastic_size = 3
    (job_id,) = await cluster.submit(8)
    await cluster.admitting.run()
    job = await cluster.store.get(job_id)
    assert (job.state, job.instances, job.allocation) == (LAUNCHING, 3, Allocation(trainers=3))
    assert job.as_allocated.spec.group.roles == {"master": 1, "worker": 2}


async def test_without_room_jobs_are_admitted_one_at_a_time_until_a_launch_finds_room(
    cluster: Cluster,
) -> None:
    first, second, third = await cluster.submit(1, 1, 1)
    cluster.admitting.found_no_room(first)
    await cluster.admitting.run()
    assert not cluster.passes[-1].is_open
    assert await cluster.states(second, third) == [QUEUED, QUEUED], "none is admitted while a launch waits"
    await cluster.end(first)
    woken = cluster.woken
    cluster.admitting.no_longer_waits(first)
    assert cluster.woken == woken + 1
    await cluster.admitting.run()
    await cluster.admitting.run()
    assert await cluster.states(second, third) == [LAUNCHING, QUEUED]
    assert cluster.admitting.found_room() == [second]
    await cluster.admitting.run()
    assert await cluster.states(third) == [LAUNCHING]
    woken = cluster.woken
    cluster.admitting.no_longer_waits(third)
    assert cluster.woken == woken, "a job that did not wait holds up no other"


async def test_a_trial_job_that_cannot_be_admitted_does_not_block_others(cluster: Cluster) -> None:
    first, second = await cluster.submit(1, 1)
    cluster.admitting.found_no_room(99)
    cluster.admitting.no_longer_waits(99)
    cluster.refuses[first] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await cluster.admitting.run()
    await cluster.admitting.run()
    assert await cluster.states(first, second) == [LAUNCHING, QUEUED]


async def test_reservations_are_kept_until_the_job_leaves_the_queue(cluster: Cluster) -> None:
    running, waiting = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    await cluster.admitting.keep_notes()
    kept = await reservation_of(cluster.store, waiting)
    assert kept is not None
    assert kept.reasons == (Reason.CAPACITY,)
    assert kept.promise == Promise(math.inf, "")

    cluster.pass_time(minutes=1)
    cluster.lead()
    await cluster.admitting.run()
    assert cluster.board.promises == {waiting: kept.promise}, "a new leader keeps promises"
    await cluster.end(running)
    await cluster.admitting.run()
    # The slow repair may write at the same time.
    await asyncio.gather(cluster.admitting.keep_notes(), cluster.admitting.keep_notes(with_usage=True))
    assert await reservation_of(cluster.store, waiting) is None


async def test_the_usage_of_a_queue_survives_a_change_of_leaders(cluster: Cluster) -> None:
    await cluster.submit(10)
    await cluster.admitting.run()
    cluster.pass_time(seconds=50)
    await cluster.admitting.run()
    await cluster.admitting.keep_notes(with_usage=True)
    used = cluster.used
    assert used == pytest.approx(10 * 50, rel=0.2)
    cluster.lead()
    await cluster.admitting.run()
    assert cluster.used == pytest.approx(used)


async def test_what_is_used_between_the_last_note_and_the_next_leader_counts(cluster: Cluster) -> None:
    await cluster.submit(10)
    await cluster.admitting.run()
    cluster.pass_time(seconds=5)
    await cluster.admitting.keep_notes(with_usage=True)
    await cluster.submit(10)
    await cluster.admitting.run()
    cluster.pass_time(seconds=5)
    await cluster.admitting.run()
    with_one_leader = cluster.used
    cluster.lead()
    await cluster.admitting.run()
    assert cluster.used == pytest.approx(with_one_leader)


@pytest.mark.parametrize("hours", [-24, 24, -24 * 365, 24 * 365])
async def test_a_clock_that_is_set_changes_neither_usage_nor_the_order_of_promises(
    cluster: Cluster, hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.expected = timedelta(minutes=10)
    _, first, second = await cluster.submit(CAPACITY, CAPACITY, CAPACITY)
    await cluster.admitting.run()
    cluster.pass_time(seconds=60)
    pause = await cluster.admitting.run()
    used, promised = cluster.used, dict(cluster.board.promises)
    assert pause == timedelta(minutes=9)

    cluster.set_clock(hours=hours)
    assert await cluster.admitting.run() == pause
    assert cluster.used == pytest.approx(used)
    moved = {job_id: each.at - promised[job_id].at for job_id, each in cluster.board.promises.items()}
    assert moved == {first: hours * 3600, second: hours * 3600}
    assert caplog.messages == [
        f"the clock was set by {hours * 3600:+d} s; all times of the planner are moved by the same amount"
    ]
    cluster.set_clock(hours=-hours)
    await cluster.admitting.run()
    assert cluster.used == pytest.approx(used)
    assert cluster.board.promises == promised


@pytest.mark.parametrize("hours", [-24, 24])
async def test_a_clock_that_was_set_while_no_leader_was_there_keeps_the_order_of_promises(
    cluster: Cluster, hours: int
) -> None:
    cluster.expected = timedelta(minutes=10)
    _, first, second = await cluster.submit(CAPACITY, CAPACITY, CAPACITY)
    await cluster.admitting.run()
    await cluster.admitting.keep_notes(with_usage=True)
    cluster.set_clock(hours=hours)
    cluster.lead()
    await cluster.admitting.run()
    starts = [(cluster.board.promises[job].at - cluster.now.timestamp()) / 60 for job in (first, second)]
    assert starts[0] > 0
    assert hours > 0 or starts[0] <= 10, "a start in the future counts as one now"
    assert starts[1] == pytest.approx(starts[0] + 10)


async def test_a_queue_that_was_removed_while_jobs_waited_there_still_runs_them(cluster: Cluster) -> None:
    cluster.queue = "gone"
    (running, waiting) = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    await cluster.end(running)
    await cluster.admitting.run()
    assert await cluster.states(waiting) == [LAUNCHING]


FOR_PRIORITY = PreemptionReason.PRIORITY


def stops(victim: int, preemptor: int) -> Plan:
    return Plan(preempted=(Preempt(job_id=victim, attempt=1, by_job=preemptor, why=FOR_PRIORITY),))


async def test_a_preemption_is_stored_before_the_tracker_looks_at_the_job(cluster: Cluster) -> None:
    victim, preemptor = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    cluster.answer = stops(victim, preemptor)
    await cluster.admitting.run()
    job = await cluster.store.get(victim)
    assert (job.state, cluster.settled) == (LAUNCHING, [victim])
    assert job.preemption == Preemption(by_job=preemptor, why=FOR_PRIORITY, by_project="default")
    stake = cluster.board.preemption.stakes[victim]
    assert (stake.is_leaving, stake.leaves_for) == (True, preemptor)


async def test_nothing_is_stopped_for_a_job_that_was_cancelled_meanwhile(cluster: Cluster) -> None:
    victim, preemptor = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    job = await cluster.store.get(preemptor)
    await cluster.store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))
    cluster.answer = stops(victim, preemptor)
    await cluster.admitting.run()
    assert (await cluster.store.get(victim)).ending is None
    assert (cluster.settled, cluster.passes[-1].waiting) == ([], []), "it was read again, and planned anew"


async def test_a_plan_that_is_stale_stops_no_job_and_the_next_one_uses_what_is_free(cluster: Cluster) -> None:
    (victim,) = await cluster.submit(CAPACITY - 1)
    await cluster.admitting.run()
    cancelled, preemptor = await cluster.submit(1, 1)
    cluster.cancelled_meanwhile.add(cancelled)
    cluster.answer = replace(stops(victim, preemptor), admitted=(Admit(cancelled, Allocation()),))
    await cluster.admitting.run()
    assert (await cluster.store.get(victim)).ending is None
    assert await cluster.states(preemptor) == [LAUNCHING]


async def test_a_later_attempt_is_not_stopped_by_an_old_decision(cluster: Cluster) -> None:
    victim, preemptor = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    first = await cluster.store.get(victim)
    back = await cluster.store.update(first.ended(Ending(JobState.BACKOFF, NOON), NOON))
    await cluster.store.update((await cluster.store.update(back.queued_again(NOON))).admitted(NOON))
    cluster.answer = stops(victim, preemptor)
    await cluster.admitting.run()
    assert (await cluster.store.get(victim)).ending is None


async def test_a_preemption_that_could_not_be_written_is_decided_again(cluster: Cluster) -> None:
    victim, preemptor = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    cluster.answer, cluster.refuses[victim] = stops(victim, preemptor), StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await cluster.admitting.run()
    assert cluster.settled == []
    cluster.answer = stops(victim, preemptor)
    await cluster.admitting.run()
    assert cluster.settled == [victim]


async def test_a_later_leader_finds_who_is_being_stopped_and_for_whom(cluster: Cluster) -> None:
    victim, preemptor = await cluster.submit(CAPACITY, 1)
    await cluster.admitting.run()
    cluster.answer = stops(victim, preemptor)
    await cluster.admitting.run()
    cluster.lead()
    await cluster.admitting.run()
    snapshot = cluster.board.snapshot(is_open=True)
    assert (list(snapshot.claims), snapshot.stakes[victim].leaves_for) == ([preemptor], preemptor)


async def test_the_reasons_of_waiting_jobs_are_counted_and_changes_announced_once(cluster: Cluster) -> None:
    first, second, third = await cluster.submit(CAPACITY, CAPACITY, 1)
    await cluster.admitting.run()
    assert sum(cluster.admitting.reasons.values()) == 2
    assert cluster.admitting.reasons[Reason.CAPACITY] >= 1
    await cluster.admitting.keep_notes()
    assert (second, "capacity", "Other jobs use what it needs.") in cluster.news
    assert {job_id for job_id, _, _ in cluster.news} <= {second, third}
    before = list(cluster.news)
    await cluster.admitting.run()
    await cluster.admitting.keep_notes()
    assert cluster.news == before
    await cluster.end(first, second, third)
    await cluster.admitting.run()
    assert sum(cluster.admitting.reasons.values()) == 0


async def test_a_reason_is_announced_later_if_the_store_does_not_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, waiting = await cluster.submit(CAPACITY, CAPACITY)
    await cluster.admitting.run()

    async def away(_: int) -> Job:
        raise StoreUnavailable("injected")

    with monkeypatch.context() as patched:
        patched.setattr(cluster.store, "get", away)
        with pytest.raises(StoreUnavailable):
            await cluster.admitting.keep_notes()
    assert cluster.news == []
    await cluster.admitting.keep_notes()
    assert cluster.news == [(waiting, "capacity", "Other jobs use what it needs.")]


async def test_a_later_leader_knows_what_was_learned_of_waits(cluster: Cluster) -> None:
    await cluster.submit(CAPACITY)
    await cluster.admitting.run()
    cluster.pass_time(seconds=1)
    (waiting,) = await cluster.submit(CAPACITY)
    await cluster.admitting.run()
    assert cluster.board.experience.waits.waiting() == [waiting]
    await cluster.admitting.keep_notes(with_usage=True)
    cluster.lead()
    await cluster.admitting.run()
    assert cluster.board.experience.waits.waiting() == [waiting]
