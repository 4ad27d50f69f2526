"""Lets the service read the stacks of this process from outside, even if the process cannot report them.

On a signal, Python's faulthandler writes the stacks into a file in memory, even while native code holds the
GIL. The name of the file contains the numbers of two signals. On the first signal, faulthandler writes the
stacks of up to 100 threads, the newest first. The main thread may be missing. So on the second signal,
faulthandler writes only the stack of the main thread. The service's inspector reads the file.
"""

import faulthandler
import fcntl
import os
import signal
from contextlib import suppress

_OFFSETS = 11, 12  # real-time signals that no known library uses


def answer() -> None:
    """Answer the signals from now on.

    Do nothing if this was called before, if the program uses one of the signals, or if the system lacks such
    signals or files in memory.
    """
    if _files:
        return
    with suppress(AttributeError, OSError, RuntimeError, ValueError):
        numbers = [signal.SIGRTMIN + offset for offset in _OFFSETS]
        if any(signal.getsignal(number) is not signal.SIG_DFL for number in numbers):
            return  # the program uses one of them
        file = os.memfd_create("trainer-kit-stacks-{}-{}".format(*numbers))
        _files.append(file)
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        for number, of_all in zip(numbers, (True, False), strict=True):
            faulthandler.register(number, file, all_threads=of_all)


_files: list[int] = []
