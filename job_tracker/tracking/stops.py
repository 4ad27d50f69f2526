"""Groups that are being stopped, each in a task of its own.

A stop takes as long as the processes' grace, so no worker of the tracker waits for one. One that failed
begins again after a pause, which grows.
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
    """Begins stops, and keeps how each ended until it is forgotten."""

    def __init__(self, on_end: Callable[[GroupRef], None]) -> None:
        """`on_end` is called with a group whose stop has ended, well or not."""
        self._on_end = on_end
        self._tasks: dict[GroupRef, asyncio.Task[Observation | None]] = {}
        self._backoffs: dict[GroupRef, Backoff] = {}

    def begin(self, group: GroupRef, work: Callable[[], Coroutine[Any, Any, Observation | None]]) -> None:
        """Begin to stop the group by `work`, unless that is under way."""
        if group not in self._tasks:
            backoff = self._backoffs.get(group)
            stop = self._after_pause(0.0 if backoff is None else backoff.next(), work)
            task = self._tasks[group] = asyncio.create_task(stop, name=f"stop {group.name}")
            task.add_done_callback(lambda _: self._on_end(group))

    def has_begun(self, group: GroupRef) -> bool:
        """Whether a stop of the group is under way, or has ended and is not forgotten."""
        return group in self._tasks

    def has_ended(self, group: GroupRef) -> bool:
        """Whether a stop of the group has ended."""
        return group in self._tasks and self._tasks[group].done()

    def outcome(self, group: GroupRef) -> Observation | None:
        """What the stop saw of the group. Raises what it raised; it may then be begun again."""
        task = self._tasks[group]
        if task.cancelled() or task.exception() is not None:
            del self._tasks[group]
            self._backoffs.setdefault(group, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE))
        return task.result()

    def forget(self, group: GroupRef) -> None:
        """Forget how the stop ended."""
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
        """Leave what is being stopped to a later tracker."""
        await end(*self._tasks.values())
