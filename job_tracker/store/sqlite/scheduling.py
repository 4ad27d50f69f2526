"""The notes of scheduling in SQLite."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from job_tracker.store.lease import Term
from job_tracker.store.scheduling import Changed
from job_tracker.store.sqlite.lease import Lease
from job_tracker.store.sqlite.writer import GroupCommitter


class _Read(Protocol):
    """Reads rows in a thread."""

    def __call__(
        self, parse: Callable[[list[sqlite3.Row]], list[sqlite3.Row]], query: str, *values: Any
    ) -> Awaitable[list[sqlite3.Row]]: ...


class SqliteScheduling:
    """The part of a store that keeps notes of scheduling; see SchedulingStore."""

    def __init__(
        self,
        writer: GroupCommitter,
        lease: Lease,
        read_one: Callable[..., sqlite3.Row | None],
        read: _Read,
    ) -> None:
        self.__writer = writer
        self.__lease = lease
        self.__read_one = read_one
        self.__read = read

    async def scheduling_notes(self, kind: str) -> Mapping[str, str]:
        found = await self.__read(list, "SELECT key, content FROM scheduling_notes WHERE kind = ?", kind)
        return {row["key"]: row["content"] for row in found}

    async def scheduling_note(self, kind: str, key: str) -> str | None:
        query = "SELECT content FROM scheduling_notes WHERE kind = ? AND key = ?"
        row = self.__read_one(query, kind, key)
        return row["content"] if row is not None else None

    async def keep_scheduling_notes(self, changed: Changed, *, term: Term | None = None) -> None:
        written = [(*place, content) for place, content in changed.items() if content]
        removed = [place for place, content in changed.items() if not content]

        def write(db: sqlite3.Connection) -> None:
            self.__lease.check(term)
            db.executemany("INSERT OR REPLACE INTO scheduling_notes VALUES (?, ?, ?)", written)
            db.executemany("DELETE FROM scheduling_notes WHERE kind = ? AND key = ?", removed)

        await self.__writer.run(write)
