"""Which functions of the service touch the outside: the seams that are numbered, by what they belong to."""

import errno
import importlib
import os
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from job_tracker.domain.errors import StoreUnavailable
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
    """The function that wraps all that belongs to it, for a service with this data folder."""
    # Imported only where it is asked for: a client library takes as long as all the rest.
    wrap: Callable[[Seams, Path], None] = getattr(
        importlib.import_module(f"tests.crash.{_MODULES[name]}"), f"wrap_{name}"
    )
    return wrap


def wrap_files(seams: Seams, folder: Path, only: str = "*") -> None:
    """What is made, moved and deleted below the folder, in those of its entries that match."""
    for function, error, why in (
        ("mkdir", errno.ENOSPC, NO_SPACE),
        ("open", errno.ENOSPC, NO_SPACE),
        ("rename", errno.ENOSPC, NO_SPACE),
        ("link", errno.ENOSPC, NO_SPACE),
        ("unlink", errno.EIO, INPUT_OUTPUT),
    ):
        seam = Seam("file", _name_of_file(function, folder, only), refusals={why: os_error(error)})
        seams.wrap(os, function, seam)
    # A rank's folder that cannot be deleted stays until the job is pruned: training may have seen to that.
    seams.wrap(os, "rmdir", Seam("file", _name_of_file("rmdir", folder, only)))


def store_away() -> StoreUnavailable:
    """What a store raises that cannot be reached."""
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
    """Makes the error of that number."""
    return lambda: OSError(number, f"{os.strerror(number)} (injected)")
