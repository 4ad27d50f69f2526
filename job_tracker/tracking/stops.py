"""Runs the stops of groups, each in its own task.

A stop may take as long as the grace period of the processes, so the tracker's workers do not wait for stops.
A failed stop begins again after a growing pause.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from job_tracker.backends.base import Observation
from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import end
from job_tracker.domain.group import GroupRef

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0


class Stops:
    """Begins stops, and keeps the outcome of each until `forget`."""

    def __init__(self, on_end: Callable[[GroupRef], None]) -> None:
        """Call `on_end` with each group whose stop has ended: it succeeded, failed or was cancelled."""
        self._on_end = on_end
        self._tasks: dict[GroupRef, asyncio.Task[Observation | None]] = {}
        self._backoffs: dict[GroupRef, Backoff] = {}

    def begin(self, group: GroupRef, work: Callable[[], Coroutine[Any, Any, Observation | None]]) -> None:
        """Begin to stop the group with `work`, unless a stop of the group has already begun."""
        if group not in self._tasks:
            backoff = self._backoffs.get(group)
            stop = self._after_pause(0.0 if backoff is None else backoff.next(), work)
            task = self._tasks[group] = asyncio.create_task(stop, name=f"stop {group.name}")
            task.add_done_callback(lambda _: self._on_end(group))

    def has_begun(self, group: GroupRef) -> bool:
        """Return whether a stop of the group is under way, or has ended and was not forgotten."""
        return group in self._tasks

    def has_ended(self, group: GroupRef) -> bool:
        """Return whether a stop of the group has ended."""
        return group in self._tasks and self._tasks[group].done()

    def outcome(self, group: GroupRef) -> Observation | None:
        """Return the last observation of a group whose stop has ended.

        If the stop failed, raise its error; a new stop may then begin.
        """
        task = self._tasks[group]
        if task.cancelled() or task.exception() is not None:
            del self._tasks[group]
            self._backoffs.setdefault(group, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE))
        return task.result()

    def forget(self, group: GroupRef) -> None:
        """Forget the outcome of the group's stop, if this stop has ended."""
        if self.has_ended(group):
            del self._tasks[group]
        if group not in self._tasks:
            self._backoffs.pop(group, None)

    @staticmethod
    async def _after_pause(
        seconds: float, work: Callable[[], Coroutine[Any, Any, Observation | None]]
    ) -> Observation | None:
        if seconds:
            await asyncio.sleep(seconds)
        return await work()

    async def close(self) -> None:
        """Cancel the stops. A later tracker repeats them."""
        await end(*self._tasks.values())
