"""What reading and keeping logs needs of whatever runs the ranks."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from job_tracker.domain.group import GroupRef
from job_tracker.logs.records import BEGINNING


class LiveLogs(Protocol):
    """Gives what the ranks of a group printed, during its life and until it is dropped from the spool."""

    def logs(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What the rank printed; see Backend.logs."""
        ...


class Spool(LiveLogs, Protocol):
    """Logs of stopped groups that wait on this machine for their way to storage."""

    async def stopped(self) -> Sequence[GroupRef]:
        """The stopped groups whose logs are on this machine."""
        ...

    async def drop_logs(self, group: GroupRef) -> None:
        """Forget what a stopped group printed. Idempotent."""
        ...
