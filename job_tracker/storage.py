"""Calls to storage, which may be slow, or hang: each in a thread of its own, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from job_tracker.errors import StorageUnavailable

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """The result of `work`, of which only a TrackerError is passed on; anything else is StorageUnavailable.

    The thread is not an executor's: the end of the program would wait for those.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if error is not None:
            future.set_exception(error)
            future.exception()  # seen, also if everybody has given up waiting for it
        elif not future.cancelled():
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except Exception as error:  # each of fsspec's implementations has exceptions of its own
            problem = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def patiently(work: Callable[[], T], name: str, *, seconds: float) -> T:
    """The result of `work`. Raises StorageUnavailable, saying `name`, if it fails or takes too long."""
    future = in_thread(work, name)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(future)
    except TimeoutError as error:
        raise StorageUnavailable(f"{name}: no answer in {seconds:g} s") from error
