"""Wakes the watchers of queued jobs when the queue moves, since the positions of the jobs may have changed.

With every store, each replica sees the changes of all jobs, and so can detect when the queue moves.
Therefore, watchers need not poll, and an unchanged queue costs nothing.
"""

import asyncio
from contextlib import ExitStack

from job_tracker.common.tasks import background
from job_tracker.domain.job import JobState
from job_tracker.store.jobs import Changes, JobReader

_ROUND_SECONDS = 1.0
_PARTS = 20


class QueueMoves:
    """Wakes the watchers of all jobs behind a job that has left the queue or returned to it.

    Each watcher is woken at most once a second. The wake-ups are spread over that second.
    """

    def __init__(self, store: JobReader) -> None:
        self._store = store
        self._watched: dict[Changes, int] = {}
        self._following = ExitStack()
        self._live: set[int] = set()
        """The jobs that were live at their last change. They have already left the queue, so their next
        changes move the queue only if they return to it."""

    def watch(self, job_id: int, changes: Changes) -> None:
        """Put the queued job into `changes` whenever an earlier job leaves the queue or returns to it.

        `changes` is the watcher's own subscription, and `leave` ends the watch. The first call with these
        `changes` puts the job into them at once, since the queue may have moved before the call.
        """
        if changes not in self._watched:
            if not self._watched:
                moves = self._following.enter_context(self._store.changes())
                waking = background(self._wake(moves), "queue moves", detached=True)
                self._following.callback(waking.cancel)
            self._watched[changes] = job_id
            changes.put(job_id, JobState.QUEUED)

    def leave(self, changes: Changes) -> None:
        """Stop putting jobs into these `changes`. Does nothing without an earlier `watch`."""
        if self._watched.pop(changes, None) is not None and not self._watched:
            self._following.close()
            self._live.clear()

    async def _wake(self, moves: Changes) -> None:
        while True:
            moved = [
                job_id for job_id, state in (await moves.batch()).items() if self._has_moved(job_id, state)
            ]
            first = min(moved, default=None)
            behind = [each for each in self._watched.items() if first is not None and each[1] > first]
            for part in range(_PARTS if behind else 1):
                for changes, job_id in behind[part::_PARTS]:
                    changes.put(job_id, JobState.QUEUED)
                await asyncio.sleep(_ROUND_SECONDS / _PARTS)

    def _has_moved(self, job_id: int, state: JobState) -> bool:
        """Return whether the job may have entered or left the queue with this change."""
        was_live = job_id in self._live
        if state.is_live:
            self._live.add(job_id)
        else:
            self._live.discard(job_id)
        return state is JobState.QUEUED or not was_live
