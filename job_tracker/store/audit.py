"""The protocol for audit events, and their encoding in stores.

The event of a change is stored in the transaction of the change. Therefore, the methods that change something
take the event as an argument.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.store.lease import Term


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter for events. An empty value matches all events."""

    project: str = ""
    caller: str = ""
    since: datetime | None = None
    """The earliest time of matching events. The time is taken from the event's id; see AuditEvent.id."""
    until: datetime | None = None
    """The time before which matching events happened."""


class AuditStore(Protocol):
    """Stores audit events."""

    async def add_events(self, events: Sequence[AuditEvent]) -> None:
        """Store events that do not belong to a change, such as denials, in one transaction."""
        ...

    async def list_events(
        self, where: AuditFilter, *, limit: int, before: int | None = None
    ) -> Sequence[AuditEvent]:
        """Return at most `limit` events with ids below `before`, newest first.

        If `where` has a caller, the cost does not grow with the number of events of other callers. If
        `where` has only a project, the cost does not grow with the number of events of other projects.
        """
        ...

    async def events_after(self, event_id: int, limit: int) -> Sequence[AuditEvent]:
        """Return at most `limit` events with ids above `event_id`, oldest first.

        Events that are stored later have higher ids than the returned events.
        """
        ...

    async def delete_events(self, before: datetime, limit: int, *, term: Term | None = None) -> int:
        """Delete at most `limit` events that happened before this time, oldest first. Return their number."""
        ...


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def content_of(event: AuditEvent) -> str:
    """Return the values of the event that have no column of their own, as JSON.

    Default values are left out.
    """
    values: dict[str, Any] = {"outcome": event.outcome.value}
    for name in ("means", "credential", "address", "detail", "request_id"):
        if value := getattr(event, name):
            values[name] = value
    if event.count != 1:
        values["count"] = event.count
    return _ENCODER.encode(values)


def event_from(content: str | bytes, **columns: Any) -> AuditEvent:
    """Return the event that has these values in columns, and the other values in `content`."""
    values = json.loads(content)
    return AuditEvent(**columns, **{**values, "outcome": Outcome(values["outcome"])})
