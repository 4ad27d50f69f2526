"""Calls to storage, which may be slow or hang: each in its own thread, with a time-out."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from job_tracker.domain.errors import StorageUnavailable, TrackerError

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """Run `work` in a new thread. Return the future of its result.

    An error of `work` becomes StorageUnavailable, unless it is a TrackerError.

    The thread is a daemon. An executor is not used, since Python would wait at exit for the executor's
    threads, which may hang.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: otherwise asyncio warns if nothing awaits the future
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = work()
        except TrackerError as error:
            problem = error
        except Exception as error:  # each implementation of fsspec has its own exceptions
            problem = StorageUnavailable(f"{name}: {error}")
            problem.__cause__ = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def patiently(
    work: Callable[[], T], name: str, *, seconds: float, dispose: Callable[[T], object] | None = None
) -> T:
    """Run `work` in a thread, and return its result.

    Raises StorageUnavailable with `name` if `work` fails or takes longer than `seconds`. A TrackerError of
    `work` is passed on.

    A result that comes after the time-out, or after this call was cancelled, is passed to `dispose`, in a
    thread.
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
