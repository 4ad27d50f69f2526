"""The keys of report tokens in SQLite."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby

from job_tracker.domain.audit import AuditEvent, target_of_report_key
from job_tracker.domain.job import LIVE_STATES
from job_tracker.domain.report_key import MOST_KEYS, ReportKey
from job_tracker.store.sqlite import rows
from job_tracker.store.sqlite.audit import AuditRows
from job_tracker.store.sqlite.reading import Read
from job_tracker.store.sqlite.writer import GroupCommitter

# For each key, this returns a row for each attempt that may use the key, or one row if there are none. One
# statement reads both tables, so that the keys and the attempts are from the same moment.
_KEYS = "SELECT * FROM report_keys LEFT JOIN report_key_attempts ON key = id ORDER BY id"


class SqliteReportKeys:
    """The part of a store that keeps the keys of report tokens; see ReportKeyStore."""

    def __init__(
        self, writer: GroupCommitter, audit: AuditRows, read: Read, changed: Callable[[object], None]
    ) -> None:
        self.__writer = writer
        self.__audit = audit
        self.__read = read
        self.__changed = changed

    async def report_keys(self) -> Sequence[ReportKey]:
        return await self.__read(_keys_of, _KEYS)

    async def rotate_report_key(
        self, secret: bytes, at: datetime, by: str, *, event: AuditEvent | None = None
    ) -> ReportKey | None:

        def write(db: sqlite3.Connection) -> ReportKey | None:
            _purge(db)
            number, last = db.execute("SELECT count(*), max(id) FROM report_keys").fetchone()
            if number >= MOST_KEYS:
                return None
            db.execute(
                "INSERT INTO report_key_attempts SELECT ?, id, attempt FROM jobs WHERE state IN (?, ?)",
                (last, *LIVE_STATES),
            )
            db.execute("UPDATE report_keys SET replaced_at = ? WHERE id = ?", (at.timestamp(), last))
            db.execute(
                "INSERT INTO report_keys (id, secret, made_at, made_by) VALUES (?, ?, ?, ?)",
                (last + 1, secret, at.timestamp(), by),
            )
            _purge(db)
            self.__audit.add(event, target_of_report_key(last + 1))
            return _key(db, last + 1)

        return await self.__writer.run(write, self.__changed)

    async def remove_report_key(
        self, key_id: int, at: datetime, *, event: AuditEvent | None = None
    ) -> ReportKey | None:

        def write(db: sqlite3.Connection) -> ReportKey | None:
            changed = db.execute(
                "UPDATE report_keys SET removed_at = ? "
                "WHERE id = ? AND replaced_at IS NOT NULL AND removed_at IS NULL",
                (at.timestamp(), key_id),
            ).rowcount
            if changed:
                self.__audit.add(event)
            key = _key(db, key_id)
            _purge(db)
            return key if key and key.removed_at else None

        return await self.__writer.run(write, self.__changed)

    async def purge_report_keys(self) -> Sequence[int]:
        return await self.__writer.run(_purge, lambda purged: self.__changed(purged) if purged else None)


def _purge(db: sqlite3.Connection) -> list[int]:
    db.execute(
        "DELETE FROM report_key_attempts WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = job_id "
        "AND jobs.attempt = report_key_attempts.attempt AND state IN (?, ?))",
        tuple(LIVE_STATES),
    )
    gone = db.execute(
        "DELETE FROM report_keys WHERE replaced_at IS NOT NULL "
        "AND id NOT IN (SELECT key FROM report_key_attempts) RETURNING id"
    )
    return [row["id"] for row in gone.fetchall()]


def _key(db: sqlite3.Connection, key_id: int) -> ReportKey | None:
    found = db.execute(
        "SELECT * FROM report_keys LEFT JOIN report_key_attempts ON key = id WHERE id = ?", (key_id,)
    )
    return next(iter(_keys_of(found.fetchall())), None)


def _keys_of(found: list[sqlite3.Row]) -> list[ReportKey]:
    keys = []
    for _, same in groupby(found, lambda row: row["id"]):
        parts = list(same)
        row = parts[0]
        keys.append(
            ReportKey(
                id=row["id"],
                secret=row["secret"],
                made_at=_moment(row["made_at"]),
                made_by=row["made_by"],
                replaced_at=_moment(row["replaced_at"]),
                removed_at=_moment(row["removed_at"]),
                attempts={part["job_id"]: part["attempt"] for part in parts if part["job_id"] is not None},
            )
        )
    return keys


def _moment(seconds: float | None) -> datetime | None:
    return rows.moment(seconds) if seconds is not None else None
