"""The spool of the process backend: logs wait in the folders into which the ranks have written them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from job_tracker.backends.process.folders import Folders
from job_tracker.domain.errors import BackendUnavailable, LogsNotFound
from job_tracker.domain.group import GroupRef
from job_tracker.logs import segments
from job_tracker.logs.records import BEGINNING

Result = TypeVar("Result")


class ProcessSpool:
    """See Spool. Logs are not copied and all state is on disk, so several spools may share the folders."""

    def __init__(self, root: Path, store_id: str = "") -> None:
        """`root` and `store_id` must be the same as those of the backend."""
        self._root = root.absolute()
        self._folders = Folders(self._root, store_id)

    async def waiting(self) -> Sequence[GroupRef]:
        return await on_disk(self._root, self._folders.stopped)

    async def read(
        self,
        group: GroupRef,
        rank: int,
        *,
        follow: bool = False,
        ended: asyncio.Event | None = None,
        after: bytes = BEGINNING,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """See Spool and LiveLogs. `ended`, if given, is set when the followed rank has ended."""
        try:
            folder = await asyncio.to_thread(self._folders.rank, group, rank)
            if folder is None:
                raise LogsNotFound(f"rank {rank} of group {group.name} has no log")
            pieces = segments.read(
                folder.log,
                after=after,
                tail_lines=tail_lines,
                is_growing=folder.is_supervised if follow else None,
                ended=ended,
            )
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        except OSError as error:
            raise BackendUnavailable(f"the logs of group {group.name} cannot be read: {error}") from error

    async def drop(self, group: GroupRef) -> None:
        await on_disk(self._root, lambda: self._folders.remove_logs(group))


async def on_disk(root: Path, work: Callable[[], Result]) -> Result:
    """Run `work` in a thread. Raises BackendUnavailable if `work` raises OSError."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise BackendUnavailable(f"folder {root} cannot be read or cleaned up: {error}") from error
