"""Work that many may ask for at once, and that is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


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
