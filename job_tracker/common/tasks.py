"""Background tasks: starting, repeating, sharing and ending them."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from job_tracker.common.backoff import Backoff

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

log = logging.getLogger(__name__)


def background(
    work: Coroutine[Any, Any, Result],
    name: str,
    *,
    expected: tuple[type[Exception], ...] = (),
    detached: bool = False,
) -> asyncio.Task[Result]:
    """Start work in the background. An error that ends the work is logged, unless its type is `expected`.

    With `detached`, the work starts in an empty context, so that its log lines do not name the job of the
    task that starts it.
    """
    context = contextvars.Context() if detached else None
    task = asyncio.create_task(work, name=name, context=context)

    def log_failure(_: "asyncio.Task[Result]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, expected):
            log.critical("background task %r failed", name, exc_info=error)

    task.add_done_callback(log_failure)
    return task


async def end(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel the tasks and wait until they have ended. Their results and errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def within(seconds: float, tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Wait for the tasks for at most `seconds`, then cancel the tasks that are not done.

    Errors of the tasks are not raised.
    """
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, timeout=seconds)
    finally:
        await end(*tasks)


async def repeat(
    step: Callable[[], Awaitable[None]],
    backoff: Backoff,
    *,
    period: float = 0.0,
    failure: str,
    expected: type[Exception],
) -> None:
    """Repeat `step`, with pauses of `period` seconds, until cancelled.

    After an error, the pause is the next one of `backoff` instead.

    Equal errors in a row are logged once, with the text `failure`. The log has a traceback unless the error
    is `expected`.
    """
    logged = ""
    while True:
        try:
            await step()
        except Exception as error:
            if str(error) != logged:
                unforeseen = None if isinstance(error, expected) else error
                log.warning("%s: %s", failure, error, exc_info=unforeseen)
            logged = str(error)
            await asyncio.sleep(backoff.next())
        else:
            logged = ""
            backoff.reset()
            await asyncio.sleep(period)


class SharedWork(Generic[Key, Result]):
    """Runs at most one task per key.

    Callers with the same key share the task, which continues even if they are cancelled.
    """

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[Result]] = {}

    def __contains__(self, key: Key) -> bool:
        """Return whether the work of the key is under way."""
        return key in self._running

    def begin(
        self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]], name: str, *, detached: bool = False
    ) -> asyncio.Task[Result]:
        """Return the task of the key.

        The task is started now unless it is already under way. See `background` for `detached`.
        """
        task = self._running.get(key)
        if task is None:
            # The callers handle the task's error. If all callers were cancelled, the error is dropped, and
            # the next caller starts the work again.
            task = self._running[key] = background(work(), name, expected=(Exception,), detached=detached)
            task.add_done_callback(lambda _: self._running.pop(key))
        return task

    async def do(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]], name: str) -> Result:
        """Return the result of the key's task. The task is started now unless it is already under way."""
        return await asyncio.shield(self.begin(key, work, name))

    async def wait(self) -> None:
        """Wait for all tasks that are under way. If one fails, raise its error at once.

        If the call is cancelled, the tasks are cancelled, too. A cancelled `do` leaves its task alone.
        """
        await asyncio.gather(*self._running.values())

    async def close(self) -> None:
        """Cancel all tasks that are under way."""
        await end(*self._running.values())
