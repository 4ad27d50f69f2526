"""Declared algorithms, datasets and queues in SQLite."""

import sqlite3
from collections.abc import Callable, Sequence

from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.declaration import Declaration, DeclarationLimits, Kind
from job_tracker.domain.errors import TooManyDeclarations, UnknownProject
from job_tracker.store.declarations import DEFAULT_LIMITS
from job_tracker.store.sqlite import rows
from job_tracker.store.sqlite.audit import AuditRows
from job_tracker.store.sqlite.reading import Read
from job_tracker.store.sqlite.writer import GroupCommitter

_PROJECT = "SELECT 1 FROM projects WHERE name = ?"
_NUMBER = "SELECT number FROM declaration_changes"
# This is one statement, so that the number and the declarations belong together. Without declarations, the
# result is one row, which has only the number of the last change.
_ALL = (
    "SELECT number, declarations.* FROM declaration_changes LEFT JOIN declarations "
    "ORDER BY kind, project, name"
)


class SqliteDeclarations:
    """The part of a store that keeps declarations; see DeclarationStore."""

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

    async def declarations_version(self) -> int:
        row = self.__read_one(_NUMBER)
        assert row is not None, "the migration has inserted it"
        return int(row["number"])

    async def declarations(self) -> tuple[int, Sequence[Declaration]]:
        found = await self.__read(list, _ALL)
        return found[0]["number"], [_declaration_of(row) for row in found if row["name"] is not None]

    async def put_declaration(
        self,
        declaration: Declaration,
        seen: int,
        limits: DeclarationLimits = DEFAULT_LIMITS,
        *,
        project_must_be_stored: bool = False,
        event: AuditEvent | None = None,
    ) -> bool:
        place = (declaration.kind, declaration.project, declaration.name)

        def write(db: sqlite3.Connection) -> bool:
            if db.execute(_NUMBER).fetchone()["number"] != seen:
                return False
            if project_must_be_stored and not db.execute(_PROJECT, (declaration.project,)).fetchone():
                raise UnknownProject(declaration.project)
            is_new = not db.execute(
                "DELETE FROM declarations WHERE kind = ? AND project = ? AND name = ?", place
            ).rowcount
            if is_new:
                _check_limits(db, declaration.project, limits)
            db.execute(
                "INSERT INTO declarations (kind, project, name, version, definition, changed_at, changed_by) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *place,
                    seen + 1,
                    declaration.definition,
                    declaration.changed_at.timestamp(),
                    declaration.changed_by,
                ),
            )
            changed(db)
            self.__audit.add(event)
            return True

        return await self.__writer.run(write)

    async def remove_declaration(
        self, declaration: Declaration, seen: int, *, event: AuditEvent | None = None
    ) -> bool:

        def write(db: sqlite3.Connection) -> bool:
            if db.execute(_NUMBER).fetchone()["number"] != seen:
                return False
            removed = db.execute(
                "DELETE FROM declarations WHERE kind = ? AND project = ? AND name = ?",
                (declaration.kind, declaration.project, declaration.name),
            ).rowcount
            if removed:
                changed(db)
                self.__audit.add(event)
            return bool(removed)

        return await self.__writer.run(write)


def changed(db: sqlite3.Connection) -> None:
    """Count a change of declarations, so that the number of the last change grows."""
    db.execute("UPDATE declaration_changes SET number = number + 1")


def _check_limits(db: sqlite3.Connection, project: str, limits: DeclarationLimits) -> None:
    [number] = db.execute("SELECT count(*) FROM declarations").fetchone()
    if number >= limits.in_all:
        raise TooManyDeclarations(limits.in_all)
    [number] = db.execute("SELECT count(*) FROM declarations WHERE project = ?", (project,)).fetchone()
    if project and number >= limits.of_project:
        raise TooManyDeclarations(limits.of_project, project)


def _declaration_of(row: sqlite3.Row) -> Declaration:
    return Declaration(
        kind=Kind(row["kind"]),
        project=row["project"],
        name=row["name"],
        version=row["version"],
        definition=row["definition"],
        changed_at=rows.moment(row["changed_at"]),
        changed_by=row["changed_by"],
    )
