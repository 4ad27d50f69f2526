"""Moves queued jobs to LAUNCHING, as the scheduling policy decides."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from job_tracker.domain.errors import StaleJob
from job_tracker.domain.job import LIVE_STATES, Ending, Job, JobState
from job_tracker.scheduling.policy import Admit, Decision, Policy, Refuse, Snapshot, Wait
from job_tracker.store.queue import QueueView

_ADMITTED_AT_ONCE = 32


class Admitting:
    """Admits the head of the queue, and wakes for the events that may let another job start.

    A launch that finds no room on this machine closes the queue until that launch finds room or its job ends.
    Then jobs are admitted one at a time, as a test, until a launch finds room.
    """

    def __init__(
        self,
        store: QueueView,
        policy: Policy,
        capacity: int,
        save: Callable[[Job, Job], Awaitable[object]],
        wake: Callable[[], None],
        clock: Callable[[], datetime],
    ) -> None:
        """`save` writes a job's next version; `wake` makes the tracker call `run` soon."""
        self._store = store
        self._policy = policy
        self._capacity = capacity
        self._save = save
        self._wake = wake
        self._clock = clock
        self._without_room: set[int] = set()
        """Jobs whose launch waits for room on this machine."""
        self._has_room = True
        """Whether the last launch found room."""
        self._waiting_head: int | None = None
        """The first waiting job. Those behind it cannot start before it."""

    async def run(self) -> None:
        """Admit jobs in order until the policy makes one wait, or this machine has no room."""
        while not self._without_room:
            snapshot = await self._snapshot()
            now = self._clock()
            plan = self._policy.plan(snapshot, now)
            moves = [move for decision in plan if (move := _move(decision, now))]
            if not self._has_room:
                self._without_room.update(after.id for _, after in moves if after.state.is_live)
            # Concurrently, so that they share a commit.
            saved = await asyncio.gather(*(self._save(*move) for move in moves), return_exceptions=True)
            failed = {
                after.id: result
                for (_, after), result in zip(moves, saved, strict=True)
                if isinstance(result, BaseException)
            }
            self._without_room.difference_update(failed)
            if errors := [error for error in failed.values() if not isinstance(error, StaleJob)]:
                raise errors[0]
            if failed:
                continue  # a job was cancelled in the meantime, so there may be room for others
            self._waiting_head = next((each.job.id for each in plan if isinstance(each, Wait)), None)
            if self._waiting_head is not None or not plan:
                return

    async def _snapshot(self) -> Snapshot:
        tallies = await self._store.tallies()
        in_use = sum(tallies[state].instances for state in LIVE_STATES)
        most = min(self._capacity - in_use, _ADMITTED_AT_ONCE) if self._has_room else 1
        queued = await self._store.first_queued(max(1, most))
        return Snapshot(capacity=self._capacity, in_use=in_use, queued=queued, has_room=self._has_room)

    def job_changed(self, job_id: int, state: JobState) -> None:
        """Wake only if the change may allow a job to start, since there may be many submissions."""
        if state.is_live:
            return
        if state is JobState.QUEUED and self._waiting_head is not None and job_id > self._waiting_head:
            return
        self._waiting_head = None
        self._wake()

    def found_no_room(self, job_id: int) -> None:
        """Record that the job's launch waits for room on this machine. No other job is admitted meanwhile."""
        self._without_room.add(job_id)
        self._has_room = False

    def found_room(self) -> Sequence[int]:
        """Record that a launch found room; return the jobs whose launches may be retried."""
        self._has_room = True
        waiting = [*self._without_room]
        for job_id in waiting:
            self.no_longer_waits(job_id)
        return waiting

    def no_longer_waits(self, job_id: int) -> None:
        """Record that the job's launch no longer waits for room, so that others may be admitted."""
        if job_id in self._without_room:
            self._without_room.discard(job_id)
            self._wake()


def _move(decision: Decision, now: datetime) -> tuple[Job, Job] | None:
    """Return the job before and after the decision; None if it waits."""
    match decision:
        case Admit(job):
            return job, job.admitted(now)
        case Refuse(job, diagnosis):
            return job, job.ended(Ending(JobState.FAILED, now, diagnosis), now)
        case Wait():
            return None
