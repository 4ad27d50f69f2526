"""The seams of processes and SQLite."""

import errno
import inspect
import os
import re
import signal
from pathlib import Path
from typing import Any

from job_tracker.store.sqlite import schema
from job_tracker.store.sqlite.store import SqliteStore
from job_tracker.store.sqlite.writer import GroupCommitter
from tests.crash.calls import (
    REFUSED,
    SILENT,
    TOO_MANY,
    UNREADABLE,
    name_of_update,
    os_error,
    store_away,
    wrap_files,
)
from tests.crash.seams import Seam, Seams


def wrap_sqlite(seams: Seams, data: Path) -> None:
    """Wrap the store: its commits, writes and reads."""
    seams.wrap(schema, "_migrate", Seam("commit", lambda connection: "migrations"))
    # The service dies in the writer's thread, at the commit itself. The callers see the errors.
    seams.wrap(
        GroupCommitter,
        "_transact",
        Seam("commit", lambda writer, batch: ", ".join(_purpose(each.operation) for each in batch)),
    )
    seams.wrap(
        GroupCommitter,
        "run",
        Seam(
            "write",
            lambda writer, operation, committed=None: _purpose(operation),
            kills=False,
            refusals={REFUSED: store_away},
            losses={SILENT: store_away},
        ),
    )
    seams.wrap(
        SqliteStore,
        "_all",
        Seam(
            "read",
            lambda connection, query, *values: f"read {_tables(query)}{query.partition('WHERE')[2]}",
            kills=False,
            refusals={UNREADABLE: store_away},
        ),
    )


def wrap_processes(seams: Seams, data: Path) -> None:
    """Wrap the process backend: its files, supervisors and signals."""
    wrap_files(seams, data / "groups")
    seams.wrap(
        os,
        "posix_spawn",
        Seam(
            "spawn",
            lambda path, argv, *rest, **more: f"supervisor of {Path(argv[-1]).name}",
            refusals={TOO_MANY: os_error(errno.EAGAIN)},
        ),
    )
    seams.wrap(
        signal, "pidfd_send_signal", Seam("signal", lambda pidfd, number: f"{number.name} to a supervisor")
    )


def _purpose(operation: Any) -> str:
    """Return the name of the store's method that requests the operation, and for a move its target state."""
    # SqliteStore.submit.<locals>.insert
    name = str(operation.__qualname__).split(".")[-3:][0]
    if name == "update":
        job = inspect.getclosurevars(operation).nonlocals["job"]
        return name_of_update(job.state, job.ending)
    return name


def _tables(query: str) -> str:
    return " ".join(re.findall(r"FROM (\w+)", query))
