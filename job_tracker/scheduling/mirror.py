"""A copy of the queue in a replica's memory, from which the replica answers questions.

The leader has such a copy, too, since the board of its tracker does not answer questions.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol, TypeVar

from job_tracker.common.clock import utc_now
from job_tracker.common.tasks import background, end
from job_tracker.domain.errors import JobNotFound, TrackerError
from job_tracker.domain.job import Job, JobState, why_again
from job_tracker.scheduling.board import Board, Pool
from job_tracker.scheduling.estimates import Estimate
from job_tracker.scheduling.experience import Experience
from job_tracker.scheduling.explanations import Situation
from job_tracker.scheduling.model import Plan, Reason, Snapshot
from job_tracker.scheduling.notes import Notes, notes_of
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.planner import plan as make_plan
from job_tracker.scheduling.tree import Tree
from job_tracker.store.jobs import Changes, JobStore
from job_tracker.store.queue import QueueView
from job_tracker.store.scheduling import SchedulingStore

T = TypeVar("T")

MOST_QUEUED: Final = 20_000
"""The largest number of waiting jobs that are copied.

These are the jobs with the smallest ids. All other waiting jobs have no estimate.
"""
_PAGE: Final = 1000
_READ_AT_ONCE: Final = 256
_FRESH_SECONDS: Final = 0.1
_FRESH_TIMES: Final = 4
"""The largest age of the copy when a question is answered, as a multiple of the time that its update took.

The copy may always be `_FRESH_SECONDS` old.
"""
_SHOWN_SECONDS: Final = 5.0
"""If the outlooks in statuses are older than this number of seconds, they are computed again."""
_PATIENCE_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 60.0
"""After this many seconds without a question, the copy is dropped."""


class _Store(JobStore, QueueView, SchedulingStore, Protocol):
    """The parts of a store from which the queue is copied."""


@dataclass(frozen=True, slots=True)
class Label:
    """Facts about a job that are needed for answers, but not by the planner."""

    name: str
    project: str
    submitted_by: str
    submitted_at: datetime
    why_again: str = ""
    """Why the job was stopped and waits again, as a text for members of its project. Empty: it was not
    stopped."""
    gate_note: str = ""
    """The message of the cluster's own queue about the group, if the group waits in that queue."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """An answer for statuses: the decisive reason why a job waits, and when the job may start."""

    reason: Reason
    estimate: Estimate | None


@dataclass(frozen=True)
class Seen:
    """The queue at one time."""

    situation: Situation
    labels: Mapping[int, Label]
    tree: Tree
    """The queues as they are declared."""
    options: PlannerOptions
    is_led: bool
    """Whether a leader has decided about waiting jobs."""


class Mirror:
    """Copies the queue at the first question, and follows the queue's changes while questions come.

    One question is answered at a time, in a thread. So even many questions do not slow down the service.
    """

    def __init__(
        self,
        store: _Store,
        tree: Callable[[], Tree],
        options: PlannerOptions | None = None,
        clock: Callable[[], datetime] = utc_now,
        pool: Callable[[], Pool] | None = None,
    ) -> None:
        """`tree` returns the declared queues and flavors, and `pool` the queues with the present flavors.

        Without `pool`, the declared flavors are used.
        """
        self._store = store
        self._tree = tree
        self._pool = pool or self._declared_pool
        self._options = options or PlannerOptions()
        self._clock = clock
        self._turn = asyncio.Lock()
        self._following = ExitStack()
        self._changes: Changes | None = None
        self._board = self._empty_board()
        self._labels: dict[int, Label] = {}
        self._last_id = 0
        """The id of the last waiting job that was copied, if there were too many to copy. 0: all were
        copied."""
        self._seen: Seen | None = None
        self._read_at = float("-inf")
        """The time of the event loop at which the last read of the queue began."""
        self._fresh_until = 0.0
        self._outlooks: dict[int, Outlook] = {}
        self._outlooks_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._dropping: asyncio.TimerHandle | None = None

    async def ask(self, question: Callable[[Seen], T]) -> T:
        """Call `question` with the present queue, in a thread, and return its result.

        The called function must not keep a reference to the queue.
        """
        async with self._turn:
            seen = await self._look()
            return await asyncio.to_thread(question, seen)

    async def catch_up(self, since: float) -> None:
        """Wait until the copy was read at `since` (time of the event loop) or later.

        A fresh copy is not read again before it is stale. Otherwise, frequent changes of a long queue would
        keep the service busy.
        """
        loop = asyncio.get_running_loop()
        while self._read_at < since:
            await asyncio.sleep(self._fresh_until - loop.time())
            async with self._turn:
                await self._look()

    async def experience(self) -> Experience:
        """Return the experience that was learned from earlier jobs."""
        async with self._turn:
            await self._look()
            return self._board.experience

    async def outlook_of(self, job_id: int) -> Outlook | None:
        """Return why a job waits, and when it may start; None if this is unknown.

        The answers for all jobs are computed together. If they are older than a few seconds, they are
        computed again in the background, and this call still returns the old answer. If they are older than
        a minute, this call first waits for the new answers, but only briefly.
        """
        age = asyncio.get_running_loop().time() - self._outlooks_at
        if age > _SHOWN_SECONDS:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = background(self._refresh_outlooks(), "outlooks", detached=True)
            if age > _IDLE_SECONDS:
                await asyncio.wait([self._refreshing], timeout=_PATIENCE_SECONDS)
        return self._outlooks.get(job_id)

    async def close(self) -> None:
        """Drop the copy."""
        if self._refreshing is not None:
            await end(self._refreshing)
        async with self._turn:
            self._drop()

    async def _refresh_outlooks(self) -> None:
        try:
            self._outlooks = await self.ask(_outlooks)
        except TrackerError:
            self._outlooks = {}  # Statuses then lack reasons. Other calls report the store's error.
        self._outlooks_at = asyncio.get_running_loop().time()

    async def _look(self) -> Seen:
        """Return the queue as it is now or was a moment ago."""
        loop = asyncio.get_running_loop()
        self._drop_later(loop)
        began = loop.time()
        if self._seen is None or began > self._fresh_until:
            try:
                self._seen = await self._read()
            except BaseException:
                self._drop()
                raise
            now, self._read_at = loop.time(), began
            self._fresh_until = now + max(_FRESH_SECONDS, _FRESH_TIMES * (now - began))
        return self._seen

    async def _read(self) -> Seen:
        now = self._clock().timestamp()
        notes = await notes_of(self._store, now)
        if self._changes is None:
            await self._copy(now)
        else:
            await self._follow(self._changes.take(), now)
        board = self._board
        board.usage.update(notes.usage)
        board.preemption.note(notes.claims)
        board.promises = {job_id: each.promise for job_id, each in notes.reserved.items()}
        no_room = any(Reason.ROOM in each.reasons for each in notes.reserved.values())
        snapshot = board.snapshot(is_open=not no_room)
        plan = await asyncio.to_thread(make_plan, snapshot, now, self._options)
        noted = _as_noted(plan, snapshot, notes)
        situation = Situation(snapshot, noted, now, notes.rule)
        return Seen(situation, self._labels, self._tree(), self._options, is_led=bool(notes.reserved))

    async def _copy(self, now: float) -> None:
        """Copy the queue from the store. Jobs that change during the copy are read again."""
        self._changes = self._following.enter_context(self._store.changes())
        self._board.clear(now)
        await self._board.experience.read(self._store)
        for job in sorted(await self._store.live_jobs(), key=_start_of):
            self._take_in(job, now)
        await self._read_queued(0, now)
        # A job that was admitted between the two reads is in neither.
        await self._follow(self._changes.take(), now)

    async def _read_queued(self, last: int, now: float) -> None:
        """Read the waiting jobs with ids above `last`, until MOST_QUEUED jobs are known."""
        while page := await self._store.first_queued(_PAGE, last):
            for job in page:
                self._take_in(job, now)
            last = page[-1].id
            if len(self._board.waiting) >= MOST_QUEUED:
                self._last_id = last
                return
        self._last_id = 0

    async def _follow(self, changed: Mapping[int, JobState], now: float) -> None:
        wanted = [
            job_id
            for job_id, state in changed.items()
            if not (state is JobState.QUEUED and self._last_id and job_id > self._last_id)
        ]
        for start in range(0, len(wanted), _READ_AT_ONCE):
            some = wanted[start : start + _READ_AT_ONCE]
            for job_id, job in zip(some, await asyncio.gather(*map(self._find, some)), strict=True):
                was_live = self._board.runs(job_id)
                if job is None or not (job.state.is_live or job.state is JobState.QUEUED):
                    self._board.remove(job_id, now)
                    self._labels.pop(job_id, None)
                    if job is not None and was_live:
                        self._board.ended(job)
                else:
                    self._take_in(job, now)
        if self._last_id and len(self._board.waiting) < MOST_QUEUED // 2:
            await self._read_queued(self._last_id, now)

    async def _find(self, job_id: int) -> Job | None:
        try:
            return await self._store.get(job_id)
        except JobNotFound:
            return None

    def _take_in(self, job: Job, now: float) -> None:
        self._board.read(job, now)
        spec = job.spec
        self._labels[job.id] = Label(
            *(spec.name, spec.project, spec.submitted_by, job.submitted_at),
            why_again=why_again(job),
            gate_note=job.gate_note if job.is_gated else "",
        )

    def _empty_board(self) -> Board:
        return Board(self._pool, self._options.half_life)

    def _declared_pool(self) -> Pool:
        tree = self._tree()
        return tree.pool.flavors, tree.queues

    def _drop_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        self._dropping = loop.call_later(_IDLE_SECONDS, self._drop_if_idle)

    def _drop_if_idle(self) -> None:
        if self._turn.locked():  # a question is being answered
            self._drop_later(asyncio.get_running_loop())
        else:
            self._drop()

    def _drop(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
            self._dropping = None
        self._following.close()
        self._changes = self._seen = None
        self._board = self._empty_board()
        self._labels, self._outlooks = {}, {}
        self._last_id = 0
        self._outlooks_at = float("-inf")


def _as_noted(plan: Plan, snapshot: Snapshot, notes: Notes) -> Plan:
    """Return the plan with the leader's reservations in place of the plan's decisions about the same jobs."""
    waiting = {
        job_id: each for job_id, each in notes.reserved.items() if snapshot.waiting.get(job_id) is not None
    }
    others = [each for each in plan.reserved if each.job_id not in waiting]
    reserved = sorted([*waiting.values(), *others], key=lambda each: each.promise.at)
    admitted = tuple(each for each in plan.admitted if each.job_id not in waiting)
    return replace(plan, admitted=admitted, reserved=tuple(reserved))


def _start_of(job: Job) -> datetime:
    return job.admitted_at or job.submitted_at


def _outlooks(seen: Seen) -> dict[int, Outlook]:
    if not seen.is_led:
        return {}
    situation = seen.situation
    waiting = situation.snapshot.waiting
    return {
        gang.job_id: Outlook(situation.reasons(gang)[0], situation.estimate(gang.job_id))
        for queue in waiting.queues()
        for gang in waiting.in_order(queue)
    }
