"""Which functions of the service touch the outside: the seams that are numbered."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from job_tracker.errors import StoreUnavailable
from job_tracker.store.sqlite import schema
from job_tracker.store.sqlite.store import SqliteStore
from job_tracker.store.sqlite.writer import GroupCommitter
from tests.crash.seams import Seam, Seams

NO_SPACE, TOO_MANY, INPUT_OUTPUT = "no space left", "too many processes", "input/output error"
REFUSED, SILENT, UNREADABLE = "store refuses", "store does not answer", "store cannot read"


def wrap_sqlite(seams: Seams) -> None:
    """The store: its commits, and all that is asked of it."""
    seams.wrap(schema, "_migrate", Seam("commit", lambda connection: "migrations"))
    # The service dies in the writer's thread, at the commit itself; errors are seen by who asked.
    seams.wrap(
        GroupCommitter,
        "_transact",
        Seam("commit", lambda writer, batch: ", ".join(_purpose(each.operation) for each in batch)),
    )
    unavailable = lambda: StoreUnavailable("injected")  # noqa: E731
    seams.wrap(
        GroupCommitter,
        "run",
        Seam(
            "write",
            lambda writer, operation, committed=None: _purpose(operation),
            kills=False,
            refusals={REFUSED: unavailable},
            losses={SILENT: unavailable},
        ),
    )
    seams.wrap(
        SqliteStore,
        "_all",
        Seam(
            "read",
            lambda connection, query, *values: query.split("WHERE")[-1],
            kills=False,
            refusals={UNREADABLE: unavailable},
        ),
    )


def wrap_processes(seams: Seams, folder: Path) -> None:
    """The process backend: files below the folder, supervisors, and the signals to them."""
    for function, error, why in (
        ("mkdir", errno.ENOSPC, NO_SPACE),
        ("open", errno.ENOSPC, NO_SPACE),
        ("rename", errno.ENOSPC, NO_SPACE),
        ("link", errno.ENOSPC, NO_SPACE),
        ("unlink", errno.EIO, INPUT_OUTPUT),
    ):
        seam = Seam("file", _name_of_file(function, folder), refusals={why: _os_error(error)})
        seams.wrap(os, function, seam)
    # A rank's folder that cannot be deleted stays until the job is pruned: training may have seen to that.
    seams.wrap(os, "rmdir", Seam("file", _name_of_file("rmdir", folder)))
    seams.wrap(
        os,
        "posix_spawn",
        Seam(
            "spawn",
            lambda path, argv, *rest, **more: f"supervisor of {Path(argv[-1]).name}",
            refusals={TOO_MANY: _os_error(errno.EAGAIN)},
        ),
    )
    seams.wrap(
        signal, "pidfd_send_signal", Seam("signal", lambda pidfd, number: f"{number.name} to a supervisor")
    )


def _name_of_file(function: str, folder: Path) -> Callable[..., str | None]:
    def name(path: Any, *args: Any, dir_fd: int | None = None, **more: Any) -> str | None:
        if function == "open" and not args[0] & os.O_CREAT:
            return None
        beside = Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else Path()
        place = beside / os.fsdecode(path)
        return f"{function} {place.relative_to(folder)}" if place.is_relative_to(folder) else None

    return name


def _os_error(number: int) -> Callable[[], OSError]:
    return lambda: OSError(number, f"{os.strerror(number)} (injected)")


def _purpose(operation: Any) -> str:
    # SqliteStore.submit.<locals>.insert
    return str(operation.__qualname__).split(".")[1]
