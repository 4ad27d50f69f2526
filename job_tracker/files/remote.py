"""Calls to storage, which may be slow, or hang: each in a thread of its own, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from job_tracker.domain.errors import StorageUnavailable, TrackerError

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """The result of `work`, of which only a TrackerError is passed on; anything else is StorageUnavailable.

    The thread is not an executor's: the end of the program would wait for those.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
            future.exception()  # seen, also if everybody has given up waiting for it
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = work()
        except TrackerError as error:
            problem = error
        except Exception as error:  # each of fsspec's implementations has exceptions of its own
            problem = StorageUnavailable(f"{name}: {error}")
            problem.__cause__ = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def patiently(
    work: Callable[[], T], name: str, *, seconds: float, dispose: Callable[[T], object] | None = None
) -> T:
    """The result of `work`. Raises StorageUnavailable, saying `name`, if it fails or takes too long.

    A result that comes when it is no longer awaited is given to `dispose`, in a thread.
    """
    future = in_thread(work, name)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(future)
    except BaseException as error:
        if dispose is not None:
            future.add_done_callback(partial(_dispose, dispose, name))
        if isinstance(error, TimeoutError):
            raise StorageUnavailable(f"{name}: no answer in {seconds:g} s") from error
        raise


def _dispose(dispose: Callable[[T], object], name: str, late: "asyncio.Future[T]") -> None:
    if not late.cancelled() and late.exception() is None:
        in_thread(partial(dispose, late.result()), name)
