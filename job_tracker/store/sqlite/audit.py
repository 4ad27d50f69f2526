"""Audit events in SQLite."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from job_tracker.domain.audit import AuditEvent, first_id_at
from job_tracker.store.audit import AuditFilter, content_of, event_from
from job_tracker.store.lease import Term
from job_tracker.store.sqlite import rows
from job_tracker.store.sqlite.lease import Lease
from job_tracker.store.sqlite.reading import Read
from job_tracker.store.sqlite.writer import GroupCommitter

T = TypeVar("T")

_AT_ONCE = 64


class AuditRows:
    """The audit events of the present transaction.

    After the creation of this object, only the writer's thread uses it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        [last] = connection.execute("SELECT max(id) FROM audit").fetchone()
        self._last: int = last or 0
        self._rows: list[tuple[Any, ...]] = []

    def begin(self) -> None:
        """Begin a transaction: forget the events of the previous one, in case it was rolled back."""
        self._rows.clear()

    def add(self, event: AuditEvent | None, target: str = "") -> None:
        """Store the event with the other changes of this transaction.

        `target` is used if the event has no target.
        """
        if event is None:
            return
        self._last = max(self._last + 1, first_id_at(event.at))
        at, subject = event.at.timestamp(), event.target or target
        values = (self._last, at, event.project, event.caller, event.action, subject, content_of(event))
        self._rows.append(values)

    def write(self, db: sqlite3.Connection) -> None:
        """Insert the events. Call this right before the commit."""
        for start in range(0, len(self._rows), _AT_ONCE):
            part = self._rows[start : start + _AT_ONCE]
            db.execute(_insertion(len(part)), tuple(chain.from_iterable(part)))
        self._rows.clear()


class SqliteAudit:
    """The part of a store that keeps audit events; see AuditStore."""

    def __init__(self, writer: GroupCommitter, audit: AuditRows, lease: Lease, read: Read) -> None:
        self.__writer = writer
        self.__audit = audit
        self.__lease = lease
        self.__read = read

    async def add_events(self, events: Sequence[AuditEvent]) -> None:

        def write(_: sqlite3.Connection) -> None:
            for event in events:
                self.__audit.add(event)

        await self.__writer.run(write)

    async def list_events(
        self, where: AuditFilter, *, limit: int, before: int | None = None
    ) -> Sequence[AuditEvent]:
        source, conditions, values = "audit", ["true"], list[Any]()
        if where.project:
            source = "audit INDEXED BY audit_by_project"
            conditions.append("project = ?")
            values.append(where.project)
        if where.caller:
            source = "audit INDEXED BY audit_by_caller"
            conditions.append("caller = ?")
            values.append(where.caller)
        for condition, bound in (
            ("id >= ?", where.since and first_id_at(where.since)),
            ("id < ?", where.until and first_id_at(where.until)),
            ("id < ?", before),
        ):
            if bound is not None:
                conditions.append(condition)
                values.append(bound)
        # The text contains only constants; every value is bound.
        query = f"SELECT * FROM {source} WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"  # noqa: S608
        return await self.__read(_events_of, query, *values, limit)

    async def events_after(self, event_id: int, limit: int) -> Sequence[AuditEvent]:
        query = "SELECT * FROM audit WHERE id > ? ORDER BY id LIMIT ?"
        return await self.__read(_events_of, query, event_id, limit)

    async def delete_events(self, before: datetime, limit: int, *, term: Term | None = None) -> int:

        def write(db: sqlite3.Connection) -> int:
            self.__lease.check(term)
            return db.execute(
                "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < ? ORDER BY id LIMIT ?)",
                (first_id_at(before), limit),
            ).rowcount

        return await self.__writer.run(write)


def _events_of(found: list[sqlite3.Row]) -> list[AuditEvent]:
    return [
        event_from(
            row["content"],
            id=row["id"],
            at=rows.moment(row["at"]),
            **{name: row[name] for name in ("project", "caller", "action", "target")},
        )
        for row in found
    ]


@cache
def _insertion(number: int) -> str:
    """Return the statement that inserts this number of events.

    All rows share one statement, since the event loop may have to wait for the GIL several times during each
    statement.
    """
    return f"INSERT INTO audit VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * number)}"  # noqa: S608
