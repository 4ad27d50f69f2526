"""Ends the process on a signal: cleanly if Python can, and within a grace period in any case."""

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


class Terminated(SystemExit):
    """The process received a signal to end.

    Code must let this exception pass, so that it unwinds all `with` blocks. Because it is a SystemExit, a
    program that does not run in `process.run`, such as an MPI program, also ends with the exit code and no
    traceback.
    """

    def __init__(self, signum: int) -> None:
        self.exit_code = exit_code_for(signum)
        super().__init__(self.exit_code)


def exit_code_for(signum: int) -> int:
    """Return the exit code that shells and container engines use for a process ended by this signal."""
    return 128 + signum


def listen(grace: float = GRACE_SECONDS) -> None:
    """Let SIGTERM and SIGINT raise Terminated, and end the process within `grace` seconds.

    In a `deferred` block, SIGTERM does not raise Terminated, and the grace period of the block applies.

    Python runs a signal handler only between two bytecodes of the main thread. That thread may be in a
    collective operation and wait minutes for a dead peer. So the signal also wakes another thread, which
    ends the process after the grace period.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for signum in SIGNALS:
        signal.signal(signum, _raise_terminated)
    threading.Thread(target=_end_if_stuck, args=(read_end, grace), daemon=True).start()


@contextmanager
def deferred(grace: float) -> Iterator[Callable[[], bool]]:
    """Defer SIGTERM during the block. When it arrives, the process has `grace` seconds to end by itself.

    Yields a function that returns whether SIGTERM has arrived. SIGINT, which a person sends, still ends the
    process at once.
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
"""Grace periods of the active `deferred` blocks, the innermost last. `_end_if_stuck` reads them."""


def ignore() -> None:
    """Ignore further signals: the process is already ending."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def _raise_terminated(signum: int, _frame: FrameType | None) -> NoReturn:
    ignore()
    raise Terminated(signum)


def _end_if_stuck(read_end: int, grace: float) -> None:
    signum = os.read(read_end, 1)[0]
    while signum not in SIGNALS:  # another signal, which the training code handles
        signum = os.read(read_end, 1)[0]
    time.sleep(max(_deferral, default=grace) if signum == signal.SIGTERM else grace)
    os._exit(exit_code_for(signum))
