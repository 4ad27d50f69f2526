"""Declared algorithms, datasets and queues in Redis."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.declaration import Declaration, DeclarationLimits, Kind
from job_tracker.domain.errors import TooManyDeclarations, UnknownProject
from job_tracker.store.declarations import DEFAULT_LIMITS
from job_tracker.store.redis import scripts
from job_tracker.store.redis.access import Run
from job_tracker.store.redis.audit import argument_of


class RedisDeclarations:
    """The part of a store that keeps declarations; see DeclarationStore."""

    def __init__(self, run: Run) -> None:
        self.__run = run

    async def declarations_version(self) -> int:
        _, number = await self.__run(scripts.DECLARATIONS_VERSION)
        return int(number)

    async def declarations(self) -> tuple[int, Sequence[Declaration]]:
        _, number, pairs = await self.__run(scripts.DECLARATIONS)
        found = [_declaration_of(*each) for each in zip(pairs[::2], pairs[1::2], strict=True)]
        return int(number), sorted(found, key=lambda each: (each.kind, each.project, each.name))

    async def put_declaration(
        self,
        declaration: Declaration,
        seen: int,
        limits: DeclarationLimits = DEFAULT_LIMITS,
        *,
        project_must_be_stored: bool = False,
        event: AuditEvent | None = None,
    ) -> bool:
        facts = [declaration.changed_at.timestamp(), declaration.changed_by, declaration.definition]
        outcome, *rest = await self.__run(
            *(scripts.DECLARATION_PUT, argument_of(event), seen, declaration.project, _field_of(declaration)),
            *(json.dumps(facts, ensure_ascii=False), limits.in_all, limits.of_project),
            int(project_must_be_stored),
        )
        if outcome == b"gone":
            raise UnknownProject(declaration.project)
        if outcome == b"full":
            raise TooManyDeclarations(int(rest[0]), rest[1].decode())
        return bool(outcome == b"done")

    async def remove_declaration(
        self, declaration: Declaration, seen: int, *, event: AuditEvent | None = None
    ) -> bool:
        [outcome] = await self.__run(
            scripts.DECLARATION_REMOVE, argument_of(event), seen, _field_of(declaration)
        )
        return bool(outcome == b"done")


def _field_of(declaration: Declaration) -> str:
    return f"{declaration.project}/{declaration.kind}/{declaration.name}"


def _declaration_of(field: bytes, content: bytes) -> Declaration:
    project, kind, name = field.decode().split("/", 2)
    version, _, facts = content.partition(b"\n")
    changed_at, changed_by, definition = json.loads(facts)
    return Declaration(
        kind=Kind(kind),
        project=project,
        name=name,
        version=int(version),
        definition=definition,
        changed_at=datetime.fromtimestamp(changed_at, UTC),
        changed_by=changed_by,
    )
