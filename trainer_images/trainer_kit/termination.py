"""Ending on a signal: in order where Python can, and soon in any case."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 2.0


class Terminated(BaseException):
    """The process was told to end; unwinds `with` blocks, and is no error that code may handle."""

    def __init__(self, signum: int) -> None:
        self.exit_code = exit_code_for(signum)


def exit_code_for(signum: int) -> int:
    """The exit code by which shells and container engines say "ended by this signal"."""
    return 128 + signum


def listen(grace: float = GRACE_SECONDS) -> None:
    """From now on SIGTERM and SIGINT raise Terminated, and end the process in `grace` seconds at most.

    Python runs a signal handler only between two steps of the main thread, and that thread may be
    deep in a collective, waiting for minutes for a peer that is gone. So the signal also wakes a
    thread, which ends the process if it still lives after the grace.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for signum in SIGNALS:
        signal.signal(signum, _raise_terminated)
    threading.Thread(target=_end_if_stuck, args=(read_end, grace), daemon=True).start()


@contextmanager
def deferred(grace: float) -> Iterator[Callable[[], bool]]:
    """Within the block SIGTERM is only noted, and then the block has `grace` seconds to end by itself.

    Gives a function that says whether it has come. SIGINT, sent by a person, ends at once as ever.
    """
    noted: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda signum, _frame: noted.append(signum))
    _deferral.append(grace)
    try:
        yield lambda: bool(noted)
    finally:
        _deferral.pop()
        signal.signal(signal.SIGTERM, before)


_deferral: list[float] = []
"""Seconds that SIGTERM may be deferred, innermost last; read by the thread that ends what is stuck."""


def ignore() -> None:
    """From now on the signals change nothing: the process is ending anyway."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def _raise_terminated(signum: int, _frame: FrameType | None) -> NoReturn:
    ignore()
    raise Terminated(signum)


def _end_if_stuck(read_end: int, grace: float) -> None:
    signum = os.read(read_end, 1)[0]
    while signum not in SIGNALS:  # some other signal that the training code handles
        signum = os.read(read_end, 1)[0]
    time.sleep(max(_deferral, default=grace) if signum == signal.SIGTERM else grace)
    os._exit(exit_code_for(signum))
