"""Work that may hang, such as on storage that does not answer, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


def in_thread(name: str, work: Callable[[], Result]) -> "asyncio.Future[Result]":
    """What `work` returns, or raises.

    Not in an executor: enough threads that hang would hold up all other work there, and the end of the
    program would wait for them.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(value: Result | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
            future.exception()  # seen, also if everybody has given up waiting for it
        else:
            future.set_result(value)  # type: ignore[arg-type]  # None only where that is a Result

    def run() -> None:
        value, problem = None, None
        try:
            value = work()
        except Exception as error:  # it is raised where it is waited for
            problem = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
