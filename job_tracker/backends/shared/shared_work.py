"""Work that is done together: once for many who ask for it, or all of it before any failure counts."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, TypeVar

from job_tracker.domain.errors import LaunchFailed

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
