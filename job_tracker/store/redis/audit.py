"""Audit events in Redis."""

import json
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from job_tracker.domain.audit import AuditEvent, first_id_at
from job_tracker.store.audit import AuditFilter, content_of, event_from
from job_tracker.store.lease import Term
from job_tracker.store.redis import scripts
from job_tracker.store.redis.scripts import Script


class _Run(Protocol):
    """Runs a script, and returns its answer."""

    def __call__(self, script: Script, *arguments: str | int) -> Awaitable[list[Any]]: ...


class RunFenced(Protocol):
    """Runs a script, and returns its answer. With a term, the script runs only if the term is still valid."""

    def __call__(self, script: Script, term: Term | None, *arguments: str | int) -> Awaitable[list[Any]]: ...


def argument_of(event: AuditEvent | None) -> str:
    """Return the event as the argument that `record` in audit.lua reads; "" for None."""
    if event is None:
        return ""
    at = repr(event.at.timestamp())
    columns = (event.project, event.caller, event.action, event.target)
    return json.dumps((str(first_id_at(event.at)), at, *columns, content_of(event)), ensure_ascii=False)


class RedisAudit:
    """The part of a store that keeps audit events; see AuditStore."""

    def __init__(self, run: _Run, run_fenced: RunFenced) -> None:
        self.__run = run
        self.__run_fenced = run_fenced

    async def add_events(self, events: Sequence[AuditEvent]) -> None:
        await self.__run(scripts.AUDIT_ADD, *map(argument_of, events))

    async def list_events(
        self, where: AuditFilter, *, limit: int, before: int | None = None
    ) -> Sequence[AuditEvent]:
        below = first_id_at(where.until) if where.until else None
        if before is not None:
            below = before if below is None else min(before, below)
        lowest = first_id_at(where.since) if where.since else 0
        found: list[AuditEvent] = []
        while below is None or below > lowest:
            highest = "+" if below is None else str(below - 1)
            _, entries, rest = await self.__run(
                *(scripts.AUDIT_LIST, limit - len(found), highest, lowest, where.project, where.caller)
            )
            found += map(_event_of, entries)
            if len(found) == limit or not rest:
                break
            below = _id_of(rest)
        return found

    async def events_after(self, event_id: int, limit: int) -> Sequence[AuditEvent]:
        _, entries = await self.__run(scripts.AUDIT_AFTER, event_id + 1, limit)
        return [_event_of(entry) for entry in entries]

    async def delete_events(self, before: datetime, limit: int, *, term: Term | None = None) -> int:
        _, number = await self.__run_fenced(scripts.AUDIT_DELETE, term, first_id_at(before) - 1, limit)
        return int(number)


def _event_of(entry: Sequence[Any]) -> AuditEvent:
    event_id, pairs = entry
    values = {name.decode(): value.decode() for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    at = datetime.fromtimestamp(float(values.pop("at")), UTC)
    return event_from(values.pop("content"), id=_id_of(event_id), at=at, **values)


def _id_of(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])
