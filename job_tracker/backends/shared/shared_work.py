"""Work that is done together: once for many who ask for it, or all of it before any failure counts."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable
from typing import Any, Generic, TypeVar

from job_tracker.domain.errors import BackendUnavailable, LaunchFailed

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


async def gathered(work: Iterable[Awaitable[Result]]) -> list[Result]:
    """Gather all results; prefer a permanent failure (LaunchFailed) over a retryable one."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    failures.sort(key=lambda failure: not isinstance(failure, LaunchFailed))
    if failures:
        raise failures[0]
    return [result for result in results if not isinstance(result, BaseException)]


async def within(seconds: float, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for the tasks, and cancel those that are not done in time. Their errors stay with them."""
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, timeout=seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class NotYet(BackendUnavailable):
    """An attempt that may succeed in a moment."""


async def repeated(attempt: Callable[[], Awaitable[Result]], seconds: float, pause: float) -> Result:
    """Repeat an attempt that raises NotYet. Raises its last error after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except NotYet:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(pause)


class SharedWork(Generic[Key, Result]):
    """Who asks for what is being done already waits for that; and it goes on if one who waits gives up."""

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[Result]] = {}

    async def do(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]], name: str) -> Result:
        """The result of the work, begun now unless it is under way. `name` is what its task is called."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(work(), name=name)
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, key: Key, task: asyncio.Task[Result]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # who waited has it; if nobody did, the next who asks meets it again
