"""Logs of groups that live: what reading them needs of a backend."""

from collections.abc import AsyncGenerator
from typing import Protocol

from job_tracker.domain.group import GroupRef
from job_tracker.logs.records import BEGINNING


class LiveLogs(Protocol):
    """What the ranks of a group printed, during its life and until it is dropped from the spool."""

    def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What the rank printed, as pieces of whole records (see job_tracker.logs), in the order of time.

        Those after a time, and no more than the last so many; `follow` goes on until the rank has ended.
        Works during and after the group's life. Raises LogsNotFound if there is nothing, and
        BackendUnavailable, also in the middle, if it cannot be read now.
        """
        ...
