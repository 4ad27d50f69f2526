"""The stacks of this process's threads, as seen from another thread."""

import os
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

MOST_THREADS, MOST_CHARACTERS = 64, 64 * 1024
_MOST_FRAMES = 40
_64_BITS = 2**64 - 1


def place() -> int:
    """Return a number that changes when the main thread moves on in the program; 0 if unknown."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    positions = []
    while frame is not None:
        positions.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return hash(tuple(positions)) & _64_BITS if positions else 0


def of_all_threads() -> str:
    """Return the stacks of all threads except the calling one, the main thread first, innermost call last.

    The text has at most MOST_THREADS threads and MOST_CHARACTERS characters. Each rank may have its own
    working folder. So files in the working folder are named relative to it, and ranks at the same place have
    equal stacks.
    """
    folder = _working_folder()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main, here = threading.main_thread().ident, threading.get_ident()
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != here}
    ordered = sorted(frames, key=lambda ident: (ident != main, ident))
    shown = [_stack(names.get(ident, "unknown"), frames[ident], folder) for ident in ordered[:MOST_THREADS]]
    if len(ordered) > MOST_THREADS:
        shown.append(f"{len(ordered) - MOST_THREADS} more threads\n")
    return "".join(_within(shown, MOST_CHARACTERS))


def _working_folder() -> str:
    try:
        return f"{Path.cwd()}{os.sep}"
    except OSError:  # it was removed
        return ""


def _stack(name: str, frame: FrameType, folder: str) -> str:
    calls = "".join(
        f"  {each.filename.removeprefix(folder)}:{each.lineno} in {each.name}\n"
        for each in traceback.StackSummary.extract(
            traceback.walk_stack(frame), limit=_MOST_FRAMES, lookup_lines=False
        )[::-1]
    )
    return f"Thread {name}:\n{calls}"


def _within(parts: Iterable[str], most: int) -> Iterable[str]:
    for part in parts:
        if len(part) > most:
            yield part[:most]
            return
        most -= len(part)
        yield part
