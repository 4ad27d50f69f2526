"""Freezes programs: their connections stay open, and nothing answers."""

import os
import signal
import time
from pathlib import Path

_STANDING = frozenset("TtZX")
"""The states of threads that no longer run (proc(5)): stopped, traced, ended."""


def freeze(pid: int) -> None:
    """Stop the process with SIGSTOP, and return once all its threads stand still.

    Until the thread that gets the signal runs, which takes a while on a busy machine, the other threads go
    on, and may still answer.
    """
    os.kill(pid, signal.SIGSTOP)
    while not all(_stands(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def _stands(thread: Path) -> bool:
    try:
        # "pid (name) state …". The name may contain any character, even ")".
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in _STANDING
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended
