"""Tokens and projects in SQLite."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from job_tracker.domain.access import Project, Token, TokenLimits
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.caller import Role
from job_tracker.domain.errors import TooManyTokens
from job_tracker.domain.job import JobState
from job_tracker.store import encoding
from job_tracker.store.access import ENDED_TOKENS_PURGED, UNLIMITED
from job_tracker.store.sqlite import declarations, rows
from job_tracker.store.sqlite.audit import AuditRows
from job_tracker.store.sqlite.reading import Read
from job_tracker.store.sqlite.writer import GroupCommitter

T = TypeVar("T")


class SqliteAccess:
    """The part of a store that keeps tokens and projects; see AccessStore."""

    def __init__(
        self,
        writer: GroupCommitter,
        audit: AuditRows,
        read_one: Callable[..., sqlite3.Row | None],
        read: Read,
    ) -> None:
        self.__writer = writer
        self.__audit = audit
        self.__read_one = read_one
        self.__read = read
        self.__version = 0  # kept in memory, since only this process writes the file

    async def access_version(self) -> int:
        return self.__version

    async def add_token(
        self,
        token: Token,
        limits: TokenLimits = UNLIMITED,
        *,
        purge_before: datetime,
        event: AuditEvent | None = None,
    ) -> bool:
        values = _values_of(token)
        names = ", ".join(values)

        def write(db: sqlite3.Connection) -> bool:
            if db.execute("SELECT 1 FROM tokens WHERE id = ?", (token.id,)).fetchone():
                return False
            replaced = _replaced(db, token, limits)
            # The text contains only names of columns; every value is bound.
            insertion = f"INSERT INTO tokens ({names}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608
            db.execute(insertion, tuple(values.values()))
            db.execute(
                "DELETE FROM tokens WHERE id IN "
                "(SELECT id FROM tokens WHERE ends_at < ? ORDER BY ends_at LIMIT ?)",
                (purge_before.timestamp(), ENDED_TOKENS_PURGED),
            )
            db.executemany("DELETE FROM tokens WHERE id = ?", replaced)
            self.__audit.add(event)
            return True

        return await self.__writer.run(write, self._access_changed)

    async def token(self, token_id: str) -> Token | None:
        row = self.__read_one("SELECT * FROM tokens WHERE id = ?", token_id)
        return _token_of(row) if row else None

    async def list_tokens(self, project: str | None, *, limit: int, after: str = "") -> Sequence[Token]:
        if project is None:
            query, values = "SELECT * FROM tokens WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
            return await self.__read(_tokens_of, query, *values)
        query = "SELECT * FROM tokens WHERE project = ? AND id > ? ORDER BY id LIMIT ?"
        return await self.__read(_tokens_of, query, project, after, limit)

    async def revoke_token(
        self, token_id: str, at: datetime, *, event: AuditEvent | None = None
    ) -> Token | None:

        def write(db: sqlite3.Connection) -> Token | None:
            changed = db.execute(
                "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
                (at.timestamp(), token_id),
            ).rowcount
            if changed:
                self.__audit.add(event)
            row = db.execute("SELECT * FROM tokens WHERE id = ?", (token_id,)).fetchone()
            return _token_of(row) if row else None

        return await self.__writer.run(write, self._access_changed)

    async def touch_tokens(self, used: Mapping[str, datetime]) -> None:
        values = [(at.timestamp(), token_id) for token_id, at in used.items()]
        await self.__writer.run(
            lambda db: db.executemany("UPDATE tokens SET used_at = ? WHERE id = ?", values)
        )

    async def projects(self) -> Sequence[Project]:
        return await self.__read(_projects_of, "SELECT * FROM projects ORDER BY name")

    async def put_project(self, project: Project, *, event: AuditEvent | None = None) -> bool:
        values = (
            project.version + 1,
            encoding.text_of(encoding.MEMBERS, project.members),
            encoding.text_of(encoding.LIMITS, project.limits),
            project.name,
        )

        def write(db: sqlite3.Connection) -> bool:
            row = db.execute("SELECT version FROM projects WHERE name = ?", (project.name,)).fetchone()
            if (row["version"] if row else 0) != project.version:
                return False
            if row is None:
                db.execute(
                    "INSERT INTO projects (version, members, limits, name) VALUES (?, ?, ?, ?)", values
                )
            else:
                db.execute("UPDATE projects SET version = ?, members = ?, limits = ? WHERE name = ?", values)
            self.__audit.add(event)
            return True

        return await self.__writer.run(write, self._access_changed)

    async def delete_project(self, name: str, at: datetime, *, event: AuditEvent | None = None) -> int | None:

        def write(db: sqlite3.Connection) -> int | None:
            if not db.execute("SELECT 1 FROM projects WHERE name = ?", (name,)).fetchone():
                return None
            tallies = db.execute("SELECT state, jobs FROM project_tallies WHERE project = ?", (name,))
            left = sum(row["jobs"] for row in tallies if not JobState(row["state"]).is_terminal)
            if left:
                return int(left)
            db.execute("DELETE FROM projects WHERE name = ?", (name,))
            if db.execute("DELETE FROM declarations WHERE project = ?", (name,)).rowcount:
                declarations.changed(db)
            db.execute(
                "UPDATE tokens SET revoked_at = ? WHERE project = ? AND revoked_at IS NULL",
                (at.timestamp(), name),
            )
            self.__audit.add(event)
            return 0

        return await self.__writer.run(write, self._access_changed)

    def _access_changed(self, _outcome: object) -> None:
        self.__version += 1


def _replaced(db: sqlite3.Connection, token: Token, limits: TokenLimits) -> list[tuple[str]]:
    """Return the ids of the ended tokens that must be deleted so that the new token fits the limits.

    Raises TooManyTokens if a limit is reached, and none of the tokens that count towards it has ended.
    """
    now, replaced = token.created_at.timestamp(), []
    scopes = [("", limits.in_all)]
    if token.project:
        scopes.append((token.project, limits.of_project))
    for project, most in scopes:
        if most is None:
            continue
        of, values = ("WHERE project = ?", (project,)) if project else ("WHERE TRUE", ())
        # The queries contain only the constants above; every value is bound.
        [number] = db.execute(f"SELECT count(*) FROM tokens {of}", values).fetchone()  # noqa: S608
        if number >= most:
            ended = f"SELECT id FROM tokens {of} AND ends_at <= ? ORDER BY ends_at LIMIT 1"  # noqa: S608
            row = db.execute(ended, (*values, now)).fetchone()
            if row is None:
                raise TooManyTokens(number, project)
            replaced.append((row["id"],))
    return replaced


def _values_of(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "digest": token.digest,
        "name": token.name,
        "project": token.project,
        "role": token.role,
        "created_at": token.created_at.timestamp(),
        "created_by": token.created_by,
        "expires_at": _seconds(token.expires_at),
        "revoked_at": _seconds(token.revoked_at),
        "used_at": _seconds(token.used_at),
    }


def _token_of(row: sqlite3.Row) -> Token:
    return Token(
        id=row["id"],
        digest=row["digest"],
        name=row["name"],
        project=row["project"],
        role=Role(row["role"]) if row["role"] is not None else None,
        created_at=rows.moment(row["created_at"]),
        created_by=row["created_by"],
        expires_at=_moment(row["expires_at"]),
        revoked_at=_moment(row["revoked_at"]),
        used_at=_moment(row["used_at"]),
    )


def _tokens_of(found: list[sqlite3.Row]) -> list[Token]:
    return [_token_of(row) for row in found]


def _projects_of(found: list[sqlite3.Row]) -> list[Project]:
    return [
        Project(
            name=row["name"],
            members=encoding.MEMBERS.validate_json(row["members"]),
            limits=encoding.LIMITS.validate_json(row["limits"]),
            version=row["version"],
        )
        for row in found
    ]


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


def _moment(seconds: float | None) -> datetime | None:
    return rows.moment(seconds) if seconds is not None else None
