"""Hints to those who watch queued jobs that their places in the queue may have changed.

Changes of all jobs say when the queue has moved, on every store and for every replica. So no watcher looks by
itself again and again, and while the queue stands still nothing is done.
"""

import asyncio
from contextlib import ExitStack

from job_tracker.common.tasks import background
from job_tracker.domain.job import JobState
from job_tracker.store.jobs import Changes, JobReader

_ROUND_SECONDS = 1.0
_PARTS = 20


class QueueMoves:
    """Hints at most once a second, to those behind the first job that has left the queue or come back to it.

    Many watchers are not woken at once, but in parts over that second.
    """

    def __init__(self, store: JobReader) -> None:
        self._store = store
        self._watched: dict[Changes, int] = {}
        self._following = ExitStack()
        self._live: set[int] = set()
        """Jobs that are out of the queue, and come back only after a pause: they do not move it."""

    def watch(self, job_id: int, changes: Changes) -> None:
        """From now on hint in `changes` at the queued job whose changes these are; at once if that is new.

        Until `leave`. Nothing is known of moves before the first call, hence the hint.
        """
        if changes not in self._watched:
            if not self._watched:
                moves = self._following.enter_context(self._store.changes())
                hinting = background(self._hint(moves), "queue moves", detached=True)
                self._following.callback(hinting.cancel)
            self._watched[changes] = job_id
            changes.put(job_id, JobState.QUEUED)

    def leave(self, changes: Changes) -> None:
        """Hint there no more. May be called at any time."""
        if self._watched.pop(changes, None) is not None and not self._watched:
            self._following.close()
            self._live.clear()

    async def _hint(self, moves: Changes) -> None:
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
        """Whether the job may have left the queue, or come into it, since it was last heard of."""
        was_live = job_id in self._live
        if state.is_live:
            self._live.add(job_id)
        else:
            self._live.discard(job_id)
        return state is JobState.QUEUED or not was_live
