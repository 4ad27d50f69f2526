"""The functions through which the service touches the outside: the numbered seams, by subject."""

import errno
import importlib
import os
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.history import Ending
from job_tracker.domain.states import JobState
from tests.crash.seams import Seam, Seams

NO_SPACE, TOO_MANY, INPUT_OUTPUT = "no space left", "too many processes", "input/output error"
REFUSED, SILENT, UNREADABLE = "store refuses", "store does not answer", "store cannot read"
CONFLICT, BUSY, FAULTY, RESET = "409", "429", "500", "connection reset"
TIMED_OUT, BROKEN = "done, but no answer in time", "done, but connection reset"

_MODULES = {
    "sqlite": "calls_local",
    "processes": "calls_local",
    "redis": "calls_remote",
    "kubernetes": "calls_remote",
}


def wrapper(name: str) -> Callable[[Seams, Path], None]:
    """Return the function that wraps the calls of a subject, for a service with a given data folder."""
    # Imported on demand, because a client library takes as long to import as all other modules together.
    wrap: Callable[[Seams, Path], None] = getattr(
        importlib.import_module(f"tests.crash.{_MODULES[name]}"), f"wrap_{name}"
    )
    return wrap


def wrap_files(seams: Seams, folder: Path, only: str = "*") -> None:
    """Wrap the calls that create, move and delete files below the folder, in entries that match `only`."""
    for function, error, why in (
        ("mkdir", errno.ENOSPC, NO_SPACE),
        ("open", errno.ENOSPC, NO_SPACE),
        ("rename", errno.ENOSPC, NO_SPACE),
        ("link", errno.ENOSPC, NO_SPACE),
        ("unlink", errno.EIO, INPUT_OUTPUT),
    ):
        seam = Seam("file", _name_of_file(function, folder, only), refusals={why: os_error(error)})
        seams.wrap(os, function, seam)
    # No error here: a rank's folder that cannot be deleted stays until the job is pruned.
    seams.wrap(os, "rmdir", Seam("file", _name_of_file("rmdir", folder, only)))


def store_away() -> StoreUnavailable:
    """Return the error of a store that is unreachable."""
    return StoreUnavailable("injected")


def _name_of_file(function: str, folder: Path, only: str) -> Callable[..., str | None]:
    def name(
        path: Any, *args: Any, dir_fd: int | None = None, src_dir_fd: int | None = None, **more: Any
    ) -> str | None:
        if function == "open" and not args[0] & os.O_CREAT:
            return None
        dir_fd = dir_fd if dir_fd is not None else src_dir_fd
        beside = Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else Path()
        place = beside / os.fsdecode(path)
        if not place.is_relative_to(folder):
            return None
        inside = place.relative_to(folder)
        return f"{function} {inside}" if fnmatch(inside.parts[0] if inside.parts else "", only) else None

    return name


def os_error(number: int) -> Callable[[], OSError]:
    """Return a function that creates the error with this number."""
    return lambda: OSError(number, f"{os.strerror(number)} (injected)")


def name_of_update(state: str, ending: Ending | None) -> str:
    """Return the name of a move: the state that it leads to, or the decision about an attempt."""
    if ending is not None and ending.eviction is not None:
        return "update to evicted"
    if ending is None or ending.preemption is None or ending.state is not JobState.QUEUED:
        return f"update to {state}"
    return "update to resized" if ending.preemption.is_resize else "update to preempted"
