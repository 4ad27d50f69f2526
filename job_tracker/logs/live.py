"""The protocol by which logs are read from a backend."""

from collections.abc import AsyncGenerator
from typing import Protocol

from job_tracker.domain.group import GroupRef
from job_tracker.logs.records import BEGINNING


class LiveLogs(Protocol):
    """Logs of groups on their machines: of running groups, and of stopped groups (in the spool)."""

    def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the rank's log in pieces of whole records (see writing.py), in the order of time.

        Only records later than `after` are yielded; with `tail_lines`, only their last `tail_lines` lines. A
        part of a long line counts as a line. With `follow`, reading continues until the rank has ended.
        Raises LogsNotFound if there is no log, and BackendUnavailable if the log cannot be read now.
        BackendUnavailable may come between pieces, too.
        """
        ...
