"""Carries out the planner's decisions: admits or refuses queued jobs, and stops attempts for waiting jobs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from job_tracker.common.clock import boot_seconds
from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.errors import IllegalMove, JobNotFound, StaleJob
from job_tracker.domain.job import Ending, Job, JobState, Preemption
from job_tracker.domain.observers import WaitingObserver
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Plan, Preempt, Reason, Snapshot
from job_tracker.scheduling.notes import NoteKeeper
from job_tracker.scheduling.reasons import SENTENCES, binding_reasons, counts_by_reason
from job_tracker.store.jobs import JobStore
from job_tracker.store.queue import QueueView

log = logging.getLogger(__name__)

_PAGE = 1000
_READ_AT_ONCE = 256
_MOVED_AT_ONCE = 512
_MANY = 1000
_LONGEST_PAUSE = 1.0  # seconds
_MOST_ANNOUNCED = 100
_SHARE_OF_TIME = 0.05
_SET_CLOCK = 1.0  # seconds
"""If the clock's change and the time that has really passed differ by more than this, the clock was set."""


def _ignore(job_id: int) -> None:
    """Do nothing. The default of `settle`."""


Planner = Callable[[Snapshot, float], Plan]
"""Makes the plan for a snapshot at a time (Unix time).

The function is pure: the same arguments give the same plan.
"""


class _Store(JobStore, QueueView, Protocol):
    """The parts of a store that admission uses."""


class Admitting:
    """Keeps the board up to date (see Board), and admits jobs in passes.

    Changes in quick succession share a pass.

    While the launch of a job waits for room on this machine, no other job is admitted. If that job ends while
    its launch waits, jobs are admitted one at a time, as a test, until a launch finds room.
    """

    def __init__(
        self,
        store: _Store,
        planner: Planner,
        board: Board,
        notes: NoteKeeper,
        save: Callable[[Job, Job], Awaitable[Job]],
        wake: Callable[[timedelta], None],
        keep_notes_soon: Callable[[], None],
        clock: Callable[[], datetime],
        steady: Callable[[], float] = boot_seconds,
        on_waiting: WaitingObserver | None = None,
        settle: Callable[[int], None] = _ignore,
    ) -> None:
        """`save` writes a job's next version. `wake` makes the tracker call `run` after a time, and
        `keep_notes_soon` makes it call `keep_notes`.

        `steady` is a clock that is never set, so its comparison with `clock` shows when `clock` was set.
        About once a second, `on_waiting` gets queued jobs that have a reservation and a new reason to wait.
        `settle` makes the tracker work on a job whose attempt must be stopped.
        """
        self._store = store
        self._planner = planner
        self._board = board
        self._notes = notes
        self._save = save
        self._wake_after = wake
        self._keep_notes_soon = keep_notes_soon
        self._clock = clock
        self._settle = settle
        self._steady = steady
        self._offset = clock().timestamp() - steady()
        self._on_waiting = on_waiting
        self.reasons: Mapping[Reason, int] = {}
        """The number of jobs that still waited after the last pass, by the reason why they waited."""
        self._binding: Mapping[int, Reason] = {}
        self._announced: dict[int, Reason] = {}
        self.passes = 0
        """The number of passes so far."""
        self._not_before = 0.0
        """The earliest time of the next pass, by the monotonic clock."""
        self._is_restored = False
        self._is_delegated = False
        """Whether the cluster's own queue decides when jobs start, as of the last plan."""
        self._lacking = 0
        self._changed: set[int] = set()
        """The jobs to read again before the next pass."""
        self._reading: set[int] = set()
        self._fresh: dict[int, Job] = {}
        """Some of the jobs that were read for this pass.

        If such a job has changed since, the write of its next version fails.
        """
        self._without_room: set[int] = set()
        """Jobs whose launch waits for room on this machine, or tests whether there is room."""
        self._has_room = True
        """Whether the last launch found room."""

    async def run(self) -> timedelta | None:
        """Make one or more passes: plan, admit or refuse queued jobs, and stop attempts for waiting jobs.

        Return the time after which other jobs may be able to start even if nothing changes; None: only
        after a change.
        """
        while True:
            if not self._is_restored:
                await self._restore()
            await self._read_changed()
            now = self._now()
            self.passes += 1
            began = time.monotonic()
            plan = self._planner(self._board.snapshot(is_open=not self._without_room), now)
            self._not_before = _earliest_after(began, time.monotonic())
            # A decision is stale if its job has changed since the snapshot. Then there may be capacity for
            # other jobs, so plan again. If an admission was stale, stop no job before the new plan. A pass
            # that has admitted many jobs is followed by another pass, too.
            was_stale = await self._apply(plan) or await self._preempt(plan)
            if not was_stale and len(plan.admitted) < _MANY:
                break
        self._is_delegated = plan.is_delegated
        self._notes.decided(plan, self._board)
        self._board.learn_waits(self._board.promises, now)
        self.reasons = counts_by_reason(plan, self._board.waiting)
        self._binding = binding_reasons(plan, self._board.waiting)
        if self._notes.has_changed():
            self._keep_notes_soon()
        if plan.next_at is None:
            return None
        return timedelta(seconds=max(0.1, plan.next_at - now))

    async def keep_notes(self, *, with_usage: bool = False) -> None:
        """Write the notes that have changed, then call `on_waiting`.

        Notes about usage, learned waits and the history of use are written only if `with_usage` is true.
        """
        if self._is_restored:
            if with_usage:
                self._board.advance(self._now())
            await self._notes.write(self._board, with_usage=with_usage)
            if self._on_waiting is not None:
                await self._announce(self._on_waiting)

    async def _announce(self, observe: WaitingObserver) -> None:
        binding = self._binding
        self._announced = {job_id: each for job_id, each in self._announced.items() if job_id in binding}
        changed = [job_id for job_id, each in binding.items() if self._announced.get(job_id) is not each]
        for job_id in changed[:_MOST_ANNOUNCED]:
            reason = binding[job_id]
            job = await self._find(job_id)
            if job is not None and job.state is JobState.QUEUED:
                observe(job, reason.value, SENTENCES[reason])
            self._announced[job_id] = reason  # only now: if `_find` fails, the next call tries this job again

    async def verify(self) -> None:
        """Read the whole queue again soon if the number of queued jobs on the board is wrong.

        The number counts as wrong if it differs from the store by the same amount as at the last check: only
        a missed change causes a lasting difference. Other differences are changes that have not arrived yet.
        """
        queued = (await self._store.tallies())[JobState.QUEUED].jobs
        lacking = queued - len(self._board.waiting) - len(self._changed)
        if lacking and lacking == self._lacking:
            self._is_restored = False
        self._lacking = lacking

    def job_changed(self, job_id: int, state: JobState) -> None:
        """Follow a change of a job, and make a pass soon if the change may let a job start."""
        if job_id not in self._reading and self._is_restored:
            if self._board.knows(job_id, state):
                self._changed.discard(job_id)
                return
            if not state.is_live and state is not JobState.QUEUED:
                self._changed.discard(job_id)
                self._board.remove(job_id, self._now())
                self._wake()
                return
        self._changed.add(job_id)
        self._wake()

    def observed(self, job: Job) -> None:
        """Update a running job on the board.

        The update shows what the job would lose by a stop, whether it is being stopped, and whether it waits
        in the cluster's own queue.
        """
        if job.id in self._board.running:
            self._board.preemption.observe(job)
            if self._board.follow_gate(job) and self._is_delegated:
                self._wake()

    def may_have_changed(self, job_id: int) -> None:
        """Read the job again before the next pass, since it is unknown whether a write has changed it."""
        self._changed.add(job_id)
        self._wake()

    async def keep_claim(self, before: Job, after: Job) -> None:
        """If this step ends an attempt that was stopped for a waiting job, record in the store that the freed
        capacity is for the waiting job.

        `before` and `after` are versions of the stopped job. Call this before the end of its attempt is
        written.
        """
        stop = before.ending.preemption if before.ending is not None else None
        if stop is not None and stop.by_job and before.state.is_live and not after.state.is_live:
            await self._notes.keep_claim(before.id, (stop.by_job, stop.by_attempt))

    def attempt_ended(self, job: Job) -> None:
        """Update the expected run times of similar jobs after an attempt has ended."""
        self._board.ended(job)

    def capacity_changed(self) -> None:
        """Plan again soon: the capacity or the queues have changed."""
        self._wake()

    def found_no_room(self, job_id: int) -> None:
        """Record that the job's launch waits for room on this machine.

        Until the launch finds room or the job ends, no other job is admitted.
        """
        self._without_room.add(job_id)
        self._has_room = False

    def found_room(self) -> Sequence[int]:
        """Record that a launch found room; return the jobs whose launches may be retried."""
        if not self._has_room:
            self._has_room = True
            self._wake()
        waiting = [*self._without_room]
        for job_id in waiting:
            self.no_longer_waits(job_id)
        return waiting

    def no_longer_waits(self, job_id: int) -> None:
        """Record that the job's launch no longer waits for room, so that others may be admitted."""
        if job_id in self._without_room:
            self._without_room.discard(job_id)
            self._wake()

    def _wake(self) -> None:
        self._wake_after(timedelta(seconds=max(0.0, self._not_before - time.monotonic())))

    def _now(self) -> float:
        """Return the time for the board.

        If the clock was set, move the times on the board by the same amount.
        """
        now = self._clock().timestamp()
        offset = now - self._steady()
        if abs(offset - self._offset) > _SET_CLOCK:
            seconds = offset - self._offset
            log.warning(
                "the clock was set by %+.0f s; all times of the planner are moved by the same amount", seconds
            )
            self._board.shift(seconds)
        self._offset = offset
        return now

    async def _restore(self) -> None:
        """Read all queued and live jobs. Jobs that change meanwhile are read again."""
        self._board.clear(self._now())
        await self._notes.restore(self._board)
        await self._board.experience.read(self._store)
        for job in sorted(await self._store.live_jobs(), key=_start_of):
            self._board.read(job, self._now())
        last = 0
        while page := await self._store.first_queued(_PAGE, last):
            for job in page:
                self._board.read(job, self._now())
            last = page[-1].id
        await self._notes.restore_claims(self._board)
        self._is_restored = True

    async def _read_changed(self) -> None:
        while self._changed:
            self._reading = {self._changed.pop() for _ in range(min(len(self._changed), _READ_AT_ONCE))}
            try:
                found = await asyncio.gather(*map(self._find, self._reading))
                for job_id, job in zip(self._reading, found, strict=True):
                    self._take_in(job_id, job)
                self._fresh = {job.id: job for job in found if job is not None}
            except BaseException:
                self._changed |= self._reading
                raise
            finally:
                self._reading = set()

    async def _find(self, job_id: int) -> Job | None:
        try:
            return await self._store.get(job_id)
        except JobNotFound:
            return None

    def _take_in(self, job_id: int, job: Job | None) -> None:
        if job is None:
            self._board.remove(job_id, self._now())
        else:
            self._board.read(job, self._now())

    async def _apply(self, plan: Plan) -> bool:
        """Write the admissions and refusals of a plan. Return whether one was stale and therefore dropped."""
        now = self._clock()
        admitted = plan.admitted if self._has_room else plan.admitted[:1]
        allocations = {each.job_id: each.allocation for each in admitted}
        diagnoses = {each.job_id: each.diagnosis for each in plan.refused}
        wanted = [*allocations, *diagnoses]
        if not self._has_room:
            self._without_room.update(allocations)
        failed: dict[int, BaseException] = {}
        for start in range(0, len(wanted), _MOVED_AT_ONCE):
            some = wanted[start : start + _MOVED_AT_ONCE]
            # The next versions of these jobs are written concurrently, so that they share commits.
            moves = (
                self._move(job_id, allocations.get(job_id), diagnoses.get(job_id), now) for job_id in some
            )
            results = await asyncio.gather(*moves, return_exceptions=True)
            failed |= {job_id: each for job_id, each in zip(some, results, strict=True) if each is not None}
        self._fresh = {}
        self._without_room.difference_update(failed)
        self._changed.update(failed)
        if errors := [error for error in failed.values() if not _is_stale(error)]:
            raise errors[0]
        return bool(failed)

    async def _preempt(self, plan: Plan) -> bool:
        """Write the preemptions of a plan. The attempts are stopped only afterwards.

        Return whether a preemption was stale and therefore dropped.
        """
        now = self._clock()
        moves = (self._stop_for(each, now) for each in plan.preempted)
        results = await asyncio.gather(*moves, return_exceptions=True)
        failed = [each for each in results if each is not None]
        self._changed.update(
            job_id
            for each, result in zip(plan.preempted, results, strict=True)
            if result is not None
            for job_id in (each.job_id, each.by_job)
            if job_id
        )
        if errors := [error for error in failed if not _is_stale(error)]:
            raise errors[0]
        if len(failed) < len(plan.preempted):
            self._wake()  # the next plan shows that the waiting jobs wait for these stops
        return bool(failed)

    async def _stop_for(self, decision: Preempt, now: datetime) -> None:
        """Write one preemption. Raises StaleJob if one of the jobs has changed since the planner saw it."""
        other = await self._find(decision.by_job) if decision.by_job else None
        job = await self._find(decision.job_id)
        if decision.by_job and (other is None or other.state is not JobState.QUEUED):
            raise StaleJob(decision.by_job, other.version if other else 0)
        if job is None or (job.attempt, job.ending) != (decision.attempt, None):
            raise StaleJob(decision.job_id, job.version if job else 0)
        preemption = Preemption(
            by_job=decision.by_job,
            why=decision.why,
            by_attempt=other.attempt if other is not None else 0,
            by_project=other.spec.project if other is not None else "",
            trainers=decision.trainers,
            flavor=job.allocation.flavor if decision.trainers and job.allocation is not None else "",
        )
        self._board.read(await self._save(job, job.preempted(preemption, now)), self._now())
        self._settle(job.id)

    async def _move(
        self, job_id: int, allocation: Allocation | None, diagnosis: Diagnosis | None, now: datetime
    ) -> None:
        """Write one admission or refusal. Raises StaleJob if the job no longer waits."""
        job = self._fresh.get(job_id) or await self._find(job_id)
        if job is None or job.state is not JobState.QUEUED:
            raise StaleJob(job_id, job.version if job else 0)
        if diagnosis is not None:
            after = job.ended(Ending(JobState.FAILED, now, diagnosis), now)
        else:
            after = job.admitted(now, allocation)
        self._board.read(await self._save(job, after), self._now())


def _start_of(job: Job) -> datetime:
    return job.admitted_at or job.submitted_at


def _is_stale(error: BaseException) -> bool:
    return isinstance(error, StaleJob | JobNotFound | IllegalMove)


def _earliest_after(began: float, ended: float) -> float:
    """Return the earliest time of the next pass, after a pass that began and ended at these times.

    The pause between passes leaves time for the other work of a busy service.
    """
    return ended + min(_LONGEST_PAUSE, (ended - began) / _SHARE_OF_TIME)
