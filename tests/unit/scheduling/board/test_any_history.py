"""After any history, a new leader and another replica see what the leader sees. `scripts/fuzz` tries more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pytest

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.domain.progress import Progress, Saved
from job_tracker.domain.telemetry import AttemptReport
from job_tracker.scheduling.board import Board, Pool, advanced
from job_tracker.scheduling.mirror import Mirror
from job_tracker.scheduling.model import Flavor, Gang, Limit, PreemptionRules, Queue, Snapshot, Usage
from job_tracker.scheduling.notes import NoteKeeper
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.tree import Tree, pool_of, tree_of
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.admitting import Admitting
from tests.support.fuzzing import TIMES
from tests.support.jobs import NOON, spec

STEPS = 150
OPTIONS = PlannerOptions(half_life=100.0)
FLAVORS = (Flavor(name="x", capacity={"instances": 6}), Flavor(name="y", capacity={"instances": 3}))
RULES = PreemptionRules(by_priority=True)
QUEUES = {
    "default": Queue(name="default", preemption=RULES),
    "own": Queue(name="own", weight=2, limits={"x": {"instances": Limit(nominal=3)}}),
}
POOL: Pool = (FLAVORS, QUEUES)
TREE: Tree = tree_of(pool_of({each.name: {"instances": "1"} for each in FLAVORS}, 1), {})
FAILURE = Diagnosis(category=Category.NODE_LOST, summary="Lost.", resolution="Wait.", retryable=True)


@dataclass(frozen=True)
class Sight:
    """The content of a board, except for what a replica may have learned."""

    waiting: Mapping[str, list[Gang]]
    running: Mapping[int, object]
    stakes: Mapping[int, object]
    promises: Mapping[int, object]
    claims: list[int]
    going_on: Mapping[int, object]
    preempted: set[int]

    @classmethod
    def of(cls, seen: Snapshot) -> "Sight":
        return cls(
            waiting={queue: list(seen.waiting.in_order(queue)) for queue in seen.waiting.queues()},
            running={
                job_id: (run.gang, run.allocation, run.started_at) for job_id, run in seen.running.items()
            },
            # The startup time of a job is learned from its earlier attempts, too.
            stakes={job_id: replace(stake, startup=0.0) for job_id, stake in seen.stakes.items()},
            promises=dict(seen.promises),
            claims=list(seen.claims),
            going_on=dict(seen.going_on),
            preempted=set(seen.preempted),
        )


class Leader:
    """A leader of a store."""

    def __init__(self, history: "History") -> None:
        self.board = Board(lambda: POOL, OPTIONS.half_life)
        self.admitting = Admitting(
            history.store,
            partial(plan, options=OPTIONS),
            self.board,
            NoteKeeper(history.store, None),
            history.save,
            wake=lambda _pause: None,
            keep_notes_soon=lambda: None,
            clock=lambda: history.now,
            steady=lambda: (history.now - NOON).total_seconds(),
        )


class History:
    """A leader, another replica, and the steps of jobs."""

    def __init__(self, store: SqliteStore, chance: Random) -> None:
        self.store, self.chance, self.now = store, chance, NOON
        self.leader = Leader(self)
        self.mirror = Mirror(store, lambda: TREE, OPTIONS, self._clock, lambda: POOL)
        self.unseen: dict[int, JobState] = {}
        """The changes that the leader has not received yet."""
        self.jobs: set[int] = set()

    def _clock(self) -> datetime:
        return self.now

    async def save(self, before: Job, after: Job) -> Job:
        """Write the next version of a job, as the tracker does."""
        await self.leader.admitting.keep_claim(before, after)
        saved = await self.store.update(after)
        if before.state.is_live and not after.state.is_live:
            self.leader.admitting.attempt_ended(after)
        if before.state.is_live and after.state.is_live:
            self.leader.admitting.observed(saved)
        elif not after.state.is_live:
            self.unseen[saved.id] = saved.state
        return saved

    async def step(self) -> None:
        """Let something happen."""
        act = self.chance.choice([self.submit, self.submit, self.go_on, self.go_on, self.go_on, self.rest])
        await act()

    async def submit(self) -> None:
        size = self.chance.choice([1, 1, 2, 3, 5])
        is_elastic = size > 1 and self.chance.random() < 0.3
        wanted = spec(
            instances=size,
            elastic=Elastic(min_instances=1) if is_elastic else None,
            algorithm=f"a{len(self.jobs)}",  # so that nothing is learned from others
            queue=self.chance.choice(["default", "own", "gone"]),
            priority=self.chance.choice([0, 0, 10]),
            flavor=self.chance.choice(["", "", "x", "y"]) if size < 4 else "",
            expected=self.chance.choice([None, timedelta(seconds=60)]),
            retry=RetryPolicy(max_attempts=self.chance.choice([1, 2]), backoff=timedelta(seconds=5)),
        )
        job = await self.store.submit(wanted, self.now, None, 100_000)
        self.jobs.add(job.id)
        self.unseen[job.id] = job.state

    async def go_on(self) -> None:
        """Let any job take its next step."""
        if not self.jobs:
            return
        job = await self.store.get(self.chance.choice(sorted(self.jobs)))
        if job.state.is_terminal:
            self.jobs.discard(job.id)
            if self.chance.random() < 0.5:
                await self.store.delete([job.id])
        elif job.state is JobState.BACKOFF:
            await self.save(job, job.queued_again(self.now))
        elif job.state is JobState.QUEUED:
            if self.chance.random() < 0.2:
                await self.save(job, job.ended(Ending(JobState.CANCELLED, self.now), self.now))
        elif job.preemption is not None and self.chance.random() < 0.3:
            kind = self.chance.choice([JobState.CANCELLED, JobState.FAILED, JobState.BACKOFF])
            await self.save(job, job.decided(Ending(kind, self.now)))
        elif job.ending is not None:
            await self.save(job, job.ended(job.ending, self.now))
        elif job.state is JobState.LAUNCHING and self.chance.random() < 0.8:
            await self.save(job, job.running(self.now))
        else:
            await self._go_on_running(job)

    async def _go_on_running(self, job: Job) -> None:
        kind = self.chance.choice(["progress", "failure", "success", "cancel"])
        if kind == "progress":
            progress = Progress(step=1, saved=Saved(1, self.now))
            report = AttemptReport(job_id=job.id, attempt=job.attempt, at=self.now, progress=progress)
            await self.store.record_reports([report])
            self.leader.admitting.observed(await self.store.get(job.id))
        elif kind == "failure":
            await self.save(job, job.failed(FAILURE, self.now))
        elif kind == "success" and job.state is JobState.RUNNING:
            await self.save(job, job.decided(Ending(JobState.SUCCEEDED, self.now)))
        else:
            await self.save(job, job.decided(Ending(JobState.CANCELLED, self.now)))

    async def rest(self) -> None:
        """Let time pass. Then the leader plans, the other replica is asked, or a new leader follows."""
        self.now += timedelta(seconds=self.chance.choice([0, 1, 20, 300]))
        kind = self.chance.choice(["plan", "plan", "plan", "ask", "lead"])
        if kind == "plan":
            await self._plan()
        elif kind == "ask":
            await self._seen_by_replica()
        else:
            await self._plan()
            self.leader = Leader(self)

    async def _plan(self) -> None:
        unseen, self.unseen = self.unseen, {}
        for job_id, state in unseen.items():
            self.leader.admitting.job_changed(job_id, state)
        await self.leader.admitting.run()
        for job_id, state in self.unseen.items():  # the note that the leader has written itself
            self.leader.admitting.job_changed(job_id, state)
        self.unseen = {}
        await self.leader.admitting.keep_notes(with_usage=True)

    async def _seen_by_replica(self) -> Snapshot:
        self.mirror._fresh_until = 0.0
        return await self.mirror.ask(lambda seen: seen.situation.snapshot)

    async def check(self) -> None:
        """Compare what the leader, a new leader and the other replica see."""
        await self._plan()
        now = self.now.timestamp()
        board = self.leader.board
        expected = Sight.of(board.snapshot(is_open=True))
        amounts = _used(board.usage, now)
        used = pytest.approx(amounts, rel=1e-6)
        new = Leader(self)
        await new.admitting._restore()
        assert Sight.of(new.board.snapshot(is_open=True)) == expected, "a new leader"
        new.board.advance(now)
        assert _used(new.board.usage, now) == used, "a new leader"
        seen = await self._seen_by_replica()
        assert Sight.of(seen) == expected, "another replica"
        # The replica may have seen an end later than the leader. It keeps its own value where the leader has
        # none.
        seen_used = _used(seen.usage, now)
        assert {place: seen_used.get(place, 0.0) for place in amounts} == used, "another replica"


def _used(usage: Mapping[str, Usage], now: float) -> dict[str, float]:
    """Return the use of queues by now. Use that has decayed to nothing may be missing."""
    return {
        f"{queue} {flavor} {resource}": amount
        for queue, each in usage.items()
        for flavor, of_flavor in advanced(each, {}, now, OPTIONS.half_life).amounts.items()
        for resource, amount in of_flavor.items()
        if amount >= 1
    }


async def test_a_new_leader_and_another_replica_see_what_the_leader_sees(tmp_path: Path) -> None:
    for seed in range(2 * TIMES):
        store = await SqliteStore.open(tmp_path / f"{seed}.db")
        history = History(store, Random(seed))
        for step in range(1, STEPS + 1):
            try:
                await history.step()
                if not step % 10:
                    await history.check()
            except Exception as error:
                error.add_note(f"seed {seed}, step {step}")
                raise
        await history.mirror.close()
        await store.close()
