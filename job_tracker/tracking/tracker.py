"""Admits, launches and observes jobs, and records how they end.

Only the tracker moves jobs that are launching or running. It compares a stored job with its observed group,
and takes one step at a time (decisions.py). Events say only which job needs work. A periodic check of all
jobs makes up for missed events. If a crash has interrupted a step, the step is taken again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Protocol

from job_tracker.backends.base import Backend, Observation, RankAccess
from job_tracker.common import log_context
from job_tracker.common.clock import utc_now
from job_tracker.common.work_queue import QueueHealth, WorkQueue
from job_tracker.domain.errors import (
    JobNotFound,
    LaunchFailed,
    LeadershipLost,
    NoRoom,
    StaleJob,
    StoreUnavailable,
    TrackerError,
)
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.naming import DEFAULT_QUEUE
from job_tracker.domain.observers import JobObserver, WaitingObserver, ignore_job
from job_tracker.domain.tags import HELD
from job_tracker.files.artifacts import ModelFiles
from job_tracker.logs.collector import LogCollector
from job_tracker.reports import LogFollower, ReportBuffer
from job_tracker.scheduling.board import Board, Pool
from job_tracker.scheduling.model import DEFAULT_FLAVOR, INSTANCES, Flavor, Queue, Reason
from job_tracker.scheduling.notes import NoteKeeper
from job_tracker.scheduling.planner import plan
from job_tracker.store.audit import AuditStore
from job_tracker.store.jobs import Changes, JobFilter, JobStore
from job_tracker.store.queue import QueueView
from job_tracker.store.scheduling import SchedulingStore
from job_tracker.tracking.admitting import Admitting, Planner
from job_tracker.tracking.cleaning import Cleaner
from job_tracker.tracking.decisions import (
    Launch,
    Rest,
    Save,
    Stop,
    divergence,
    ended_by_itself,
    next_step,
    without_lost,
)
from job_tracker.tracking.inspecting import inspect_by
from job_tracker.tracking.leadership import Tenure
from job_tracker.tracking.options import TrackerOptions as TrackerOptions
from job_tracker.tracking.sightings import Sightings
from job_tracker.tracking.stops import Stops
from job_tracker.tracking.watching import ProgressWatch

log = logging.getLogger(__name__)

_DUE_BATCH = 1000
_BACK_OFFS_BATCH = 100
_DEADLINE_TOLERANCE = timedelta(seconds=1)
_DUE_PAUSE = timedelta(seconds=0.1)
_NOTES_PAUSE = timedelta(seconds=1)
_REPAIR_PAUSE = timedelta(seconds=1)


class PeriodicTask(Enum):
    """Periodic work that does not concern a single job."""

    ADMIT = "admission"
    DUE = "deadlines"
    REPAIR = "repair"
    SWEEP = "sweeping"
    PRUNE = "pruning"
    NOTES = "notes of scheduling"


class _Store(JobStore, QueueView, AuditStore, SchedulingStore, Protocol):
    """The parts of a store that the tracker uses."""


def _default_pool(capacity: int) -> Pool:
    flavor = Flavor(name=DEFAULT_FLAVOR, capacity={INSTANCES: capacity})
    return (flavor,), {DEFAULT_QUEUE: Queue(name=DEFAULT_QUEUE)}


async def _nothing() -> None:
    """Do nothing."""


class Tracker:
    """Moves jobs from state to state until `run` is cancelled.

    After `run` ends, the groups continue to run. After a long pause of this process, another replica may have
    taken over. So each write has the tracker's term, and before each call that changes something at the
    backend, the tracker checks that its term (`tenure`) is not over.
    """

    def __init__(
        self,
        store: _Store,
        backend: Backend,
        logs: LogCollector,
        options: TrackerOptions,
        tenure: Tenure,
        reports: ReportBuffer,
        planner: Planner = plan,
        pool: Callable[[], Pool] | None = None,
        clock: Callable[[], datetime] = utc_now,
        on_save: JobObserver = ignore_job,
        models: ModelFiles | None = None,
        resolve: Callable[[JobSpec], JobSpec] = lambda spec: spec,
        before_launch: Callable[[], Awaitable[None]] = _nothing,
        access: RankAccess | None = None,
        on_waiting: WaitingObserver | None = None,
    ) -> None:
        """Without `pool`, there is one flavor with the capacity of `options`, and one queue.

        Without `models`, `has_model` of succeeded jobs stays unknown.

        `resolve` completes specs that are not resolved for this backend, and may raise LaunchFailed.
        `before_launch` is called before each launch, after the job was stored as live. With `access`, ranks
        that stall and do not answer are inspected from outside.
        """
        self._store = store
        self._backend = backend
        self._logs = logs
        self._options = options
        self._cleaner = Cleaner(
            *(store, backend, logs, tenure, clock),
            keep_finished=options.keep_finished,
            keep_events=options.keep_events,
        )
        self._tenure = tenure
        self._clock = clock
        self._on_save = on_save
        self._models = models
        self._resolve = resolve
        self._before_launch = before_launch
        self._has_model: dict[GroupRef, bool | None] = {}
        self.looked_at = clock()
        """The time of the last check of all jobs; before the first one, the time of the tracker's creation.
        """
        self._queue: WorkQueue[int | PeriodicTask] = WorkQueue(
            self._work, workers=options.workers, expected=(TrackerError,)
        )
        self._stops = Stops(lambda group: self._queue.add(group.job_id))
        self._followers = LogFollower(reports, backend)
        self.progress = ProgressWatch(
            reports, self._queue.add, clock, inspect_by(access) if access is not None else None
        )
        self._changes: Changes | None = None
        """The tracker's subscription to changes by other writers."""
        self._tasks = asyncio.TaskGroup()
        self._seen = Sightings(
            backend, self._queue.add, lambda: self._queue.add_within(PeriodicTask.REPAIR, _REPAIR_PAUSE)
        )
        self._launched: set[GroupRef] = set()
        self._has_looked = False
        self._admitting = Admitting(
            *(store, planner),
            Board(pool or partial(_default_pool, options.capacity), options.usage_half_life.total_seconds()),
            NoteKeeper(store, tenure.term, lambda: clock().timestamp()),
            self._save,
            self._admit_after,
            lambda: self._queue.add_within(PeriodicTask.NOTES, _NOTES_PAUSE),
            clock,
            on_waiting=on_waiting,
            settle=self._queue.add,
        )

    @property
    def queue_health(self) -> QueueHealth:
        """Return the load of the tracker's work queue. Safe in any thread."""
        return self._queue.health

    @property
    def waiting_by_reason(self) -> Mapping[Reason, int]:
        """Return the number of jobs that still waited after the last pass, by the reason why they waited.

        Safe in any thread.
        """
        return self._admitting.reasons

    @property
    def passes(self) -> int:
        """Return how many passes the planner has made."""
        return self._admitting.passes

    async def run(self) -> None:
        """Track until cancelled."""
        try:
            async with self._tasks as tasks:
                tasks.create_task(self._follow_store())
                tasks.create_task(self._queue.run())
                tasks.create_task(self.progress.run())
                for task in PeriodicTask:
                    self._queue.add(task)
        finally:
            await self._stops.close()
            await self._followers.close()

    def capacity_changed(self) -> None:
        """Plan again: the capacity or the queues have changed."""
        self._admitting.capacity_changed()

    def _admit_after(self, pause: timedelta) -> None:
        if pause:
            self._queue.add_within(PeriodicTask.ADMIT, pause)
        else:
            self._queue.add(PeriodicTask.ADMIT)

    async def _follow_store(self) -> None:
        with self._store.changes() as self._changes:
            async for job_id, state in self._changes:
                self._look_at(job_id, state)

    def _look_at(self, job_id: int, state: JobState) -> None:
        """Add the work that follows from a job's change to the work queue."""
        if state.is_live:
            self._queue.add(job_id)
            return
        if state is JobState.QUEUED:
            # Another replica may have submitted the job, with a deadline.
            self._queue.add_within(PeriodicTask.DUE, _DEADLINE_TOLERANCE)
        self._admitting.job_changed(job_id, state)

    async def _work(self, key: int | PeriodicTask) -> timedelta | None:
        # The context is not reset afterwards: if the work fails, the queue logs the failure in the same
        # context.
        log_context.subject.set(None if isinstance(key, PeriodicTask) else log_context.Subject(key))
        try:
            return await self._work_on(key)
        except LeadershipLost as error:
            self._tenure.end(str(error))
            return None

    async def _work_on(self, key: int | PeriodicTask) -> timedelta | None:
        match key:
            case PeriodicTask.ADMIT:
                return await self._admitting.run()
            case PeriodicTask.NOTES:
                await self._admitting.keep_notes()
                return None
            case PeriodicTask.DUE:
                return await self._queue_due_jobs()
            case PeriodicTask.REPAIR:
                return await self._repair()
            case PeriodicTask.SWEEP:
                await self._cleaner.sweep()
                return self._options.repair_period
            case PeriodicTask.PRUNE:
                await self._cleaner.prune()
                return self._options.repair_period
            case _:
                return await self._settle(key)

    async def _queue_due_jobs(self) -> timedelta:
        """Add to the work queue the jobs that are due. Return the time after which this must be repeated."""
        now = self._clock()
        first = await self._store.next_due(_DUE_BATCH)
        for job_id, due_at in first:
            if due_at > now:
                return min(due_at - now, self._options.repair_period)
            self._queue.add(job_id)
        return _DUE_PAUSE if len(first) == _DUE_BATCH else self._options.repair_period

    async def _repair(self) -> timedelta:
        """Look at all groups and live jobs, in case an event was missed. Return the time to the next look."""
        found = await self._seen.look(self._tasks)
        if found is None:
            return self._options.repair_period
        now = self._clock()
        # If the clock was set back, backoffs would end too late. It may have been set back while the service
        # was down, so the first look always adds the jobs in backoff to the work queue.
        may_be_late = not self._has_looked or now < self.looked_at
        self._has_looked, self.looked_at = True, now
        if may_be_late:
            await self._queue_back_offs()
        # Until the first look is complete, `_settle` skips all jobs. A job that becomes live or due during
        # the look would be missed, so the live jobs and the deadlines are read after the look.
        live = [job.id for job in await self._store.live_jobs()]
        for job_id in {*live, *found}:
            self._queue.add(job_id)
        await self._admitting.verify()
        await self._admitting.keep_notes(with_usage=True)
        self._queue.add(PeriodicTask.ADMIT)
        self._queue.add(PeriodicTask.DUE)
        return self._options.repair_period

    async def _queue_back_offs(self) -> None:
        """Add all jobs in state BACKOFF to the work queue.

        Otherwise, a backoff would end too late if the clock was set back.
        """
        before: int | None = None
        where = JobFilter(states=frozenset({JobState.BACKOFF}))
        while page := (await self._store.list_jobs(where, limit=_BACK_OFFS_BATCH, before=before)).jobs:
            for job in page:
                self._queue.add(job.id)
            before = page[-1].id

    async def _settle(self, job_id: int) -> timedelta | None:
        """Take steps for one job until no further step is due now.

        Return the time after which a step may be due even if nothing changes; None: only after a change.
        """
        while self._has_looked:  # before the first look, running groups would seem to be gone
            try:
                job = await self._store.get(job_id)
            except JobNotFound:
                job = None
            with suppress(
                StaleJob
            ):  # another writer changed the job, for example to cancel it: read it again
                return await self._take_steps(job_id, job)
        return None

    async def _take_steps(self, job_id: int, job: Job | None) -> timedelta | None:
        """Take steps, beginning with this version of the job.

        Raises StaleJob if another version was written.
        """
        while True:
            log_context.subject.set(log_context.Subject(job_id, job.attempt if job else 0))
            if job is None or not job.state.is_live or job.ending is not None:
                self._admitting.no_longer_waits(job_id)
            if job is not None:
                self._admitting.observed(job)
            if not self._strays_are_gone(job_id, job) or job is None or job.state.is_terminal:
                return None
            stall = self.progress.stall_of(job.group)
            if stall is not None and HELD in job.tags:
                self.progress.forgive(job.group)
                stall = None
            step = next_step(
                job,
                self._seen.get(job.group),
                launched=job.group in self._launched,
                now=self._clock(),
                finish_grace=self._options.finish_grace,
                stall=stall,
                restarts_ranks=self._options.restarts_ranks,
            )
            if job.state is JobState.RUNNING and not self._stops.has_ended(job.group):
                self._followers.follow(job)
                seen = self._seen.get(job.group)
                self.progress.follow(job, [rank.machine for rank in seen.ranks] if seen else ())
            match step:
                case Launch():
                    job = await self._launch(job)
                case Save(changed):
                    job = await self._save(job, changed)
                case Stop(ending) if self._stops.has_ended(job.group):
                    job = await self._end(job, ending)
                case Stop(ending):
                    self._stops.begin(job.group, partial(self._stop, job, ending))
                    return None
                case Rest(at_most):
                    return at_most

    async def _launch(self, job: Job) -> Job:
        try:
            job = replace(job, spec=self._resolve(job.spec))
            await self._before_launch()
            self._tenure.check()
            self._seen.put(job.group, await self._backend.launch(job.as_allocated))
            self._launched.add(job.group)
        except NoRoom as error:
            self._admitting.found_no_room(job.id)
            noted = job.noting(str(error)) if job.state is JobState.LAUNCHING else job
            if noted != job:
                await self._save(job, noted)
            raise
        except LaunchFailed as error:
            job = await self._save(job, job.failed(error.diagnosis, self._clock()))
            self._admitting.no_longer_waits(job.id)
        else:
            for waiting in self._admitting.found_room():
                self._queue.add(waiting)
        return job

    async def _stop(self, job: Job, ending: Ending) -> Observation | None:
        self._tenure.check()
        seen = await self._backend.stop(job.group, self._options.stop_grace, self._options.keep_until(ending))
        await self._followers.finish(job.group)
        await self._logs.collect(job)
        if self._models is not None and ending.state is JobState.SUCCEEDED:
            self._has_model[job.group] = await self._models.has_any(job)
        return seen

    async def _end(self, job: Job, ending: Ending) -> Job:
        """Write the end of the job, or of its attempt, after the stop of the group."""
        seen = self._stops.outcome(job.group)
        if seen is not None:
            seen = without_lost(job, seen, is_over=True)
            job = job.observed(seen.statuses, seen.program)
            if (own := ended_by_itself(job, seen, self._clock())) is not None:
                return await self._save(job, own)
        if ending.state is JobState.SUCCEEDED:
            if self._models is not None and job.group not in self._has_model:
                self._has_model[job.group] = await self._models.has_any(job)
            # The last reports were written during the stop, and may show that the training diverged.
            diverged = divergence(await self._store.get(job.id))
            ending = job.failure(diverged, ending.decided_at) if diverged else ending
        ending = replace(ending, has_model=self._has_model.get(job.group))
        ended = await self._save(job, job.ended(ending, self._clock()))
        self._forget(job.group)
        return ended

    def _strays_are_gone(self, job_id: int, job: Job | None) -> bool:
        """Begin to stop the stray groups of the job, and return whether none of them is left.

        Every group is a stray, except for the group of a live job's current attempt. But even that group is a
        stray if its stop has begun although the job is not ending.
        """
        owned = job.group if job is not None and job.state.is_live else None
        strays = [group for group in self._seen.of_job(job_id) if group != owned]
        if owned is not None and job is not None and job.ending is None and self._stops.has_begun(owned):
            strays.append(owned)  # its stop began earlier, so launch again only once it is gone
        for group in strays:
            if self._stops.has_ended(group):
                self._stops.outcome(group)
                self._forget(group)
            else:
                self._stops.begin(group, partial(self._stop_stray, group))
        return not any(self._stops.has_begun(group) for group in strays)

    async def _stop_stray(self, group: GroupRef) -> Observation | None:
        self._tenure.check()
        log.warning("stopping group %s: no live job owns it", group.name)
        return await self._backend.stop(group, self._options.stop_grace)

    def _forget(self, group: GroupRef) -> None:
        self._seen.forget(group)
        self._launched.discard(group)
        self._has_model.pop(group, None)
        self.progress.forget(group)
        self._stops.forget(group)

    async def _save(self, before: Job, after: Job) -> Job:
        """Write the next version of a job, and add the work that follows from it to the work queue.

        If the job was live and stays live, the caller takes the next step itself, with the returned version.
        """
        is_next_step_of_caller = before.state.is_live and after.state.is_live
        await self._admitting.keep_claim(before, after)
        try:
            saved = await self._store.update(after, term=self._tenure.term, by=self._changes)
        except StoreUnavailable:
            # The write may have taken effect. If it has not, the caller retries after a growing pause. The
            # work that is added here must not cut this pause short.
            if not is_next_step_of_caller:
                if after.state.is_live:
                    self._queue.add(after.id)
                if before.state is not JobState.QUEUED:  # an admission that fails is retried after a pause
                    self._admitting.may_have_changed(after.id)
            self._queue.add_within(PeriodicTask.DUE, _DEADLINE_TOLERANCE)
            raise
        if not is_next_step_of_caller:
            self._look_at(after.id, after.state)
        if before.state.is_live and not after.state.is_live:
            self._admitting.attempt_ended(after)
        if after.due_at is not None and after.due_at != before.due_at:
            self._queue.add(PeriodicTask.DUE)
        with log_context.about(after.id, after.attempt):
            self._on_save(before, after)
            if after.state is not before.state:
                reason = after.history[-1].diagnosis
                why = f" ({reason.category})" if reason else ""
                log.info(
                    "job %d: %s -> %s, attempt %d%s", after.id, before.state, after.state, after.attempt, why
                )
            for rank in after.ranks:
                if rank.restarts > before.restarts_of(rank.rank):
                    self.progress.forgive(after.group)  # the stall led to this restart or ends with it
                    log.warning("job %d: rank %d: %s", after.id, rank.rank, rank.note)
        return saved
