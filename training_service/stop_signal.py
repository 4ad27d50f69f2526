"""The signals that stop the service."""

import asyncio
import os
import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_signal() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets. Call this in the main thread, in a running loop.

    A second signal ends the process at once; the exit code is 128 plus the number of the signal. This also
    holds when the loop is closed: the handlers stay, unlike those of `loop.add_signal_handler`. Without the
    handlers, a second Ctrl-C would print a traceback while Python ends.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set() or loop.is_closed():
            os._exit(128 + number)  # not the default action, which process 1 of a container does not have
        loop.call_soon_threadsafe(stopping.set)

    for number in SIGNALS:
        signal.signal(number, stop)
    return stopping
