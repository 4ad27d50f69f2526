"""Audit events as lines and as a table."""

import io

from rich.console import Console

from training_service._generated.access_service_pb2 import AuditEvent
from training_service.client.cli.render import audit

HOSTILE = "a\tb\x1b[2J[red]\n"
TAMED = "a\\tb\\x1b[2J[red]\\n"
EVENT = AuditEvent(
    outcome="denied",
    action="cancel",
    project="vision",
    target=HOSTILE,
    detail="role viewer",
    count=3,
    caller=HOSTILE,
    token_id="aaaaaaaa",
    address="ipv4:192.0.2.1",
    request_id="r-1",
)
EVENT.at.FromJsonString("2026-11-21T12:00:00Z")


def drawn(*events: AuditEvent) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=300, color_system=None).print(audit.events_table(events))
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_a_line_has_tab_separated_fields_despite_hostile_names() -> None:
    fields = ["2026-11-21T12:00:00Z", "denied", TAMED, "cancel", TAMED, "vision", "3", "role viewer"]
    assert audit.event(EVENT).split("\t") == [*fields, "ipv4:192.0.2.1", "aaaaaaaa", "r-1"]


def test_values_that_are_not_known_are_shown_as_such() -> None:
    event = AuditEvent(outcome="denied", action="authenticate", count=1)
    fields = ["1970-01-01T00:00:00Z", "denied", "-", "authenticate", "-", "-", "1", "-", "-", "-", "-"]
    assert audit.event(event).split("\t") == fields
    assert drawn(event)[1].split()[2:] == ["denied", "-", "authenticate", "-", "-", "-", "-"]


def test_a_table_has_a_row_for_each_event() -> None:
    heading, row = drawn(EVENT)
    assert heading.split() == ["TIME", "OUTCOME", "CALLER", "ACTION", "TARGET", "PROJECT", "DETAIL", "FROM"]
    assert "cancel (3 times)" in row
    assert TAMED in row
    assert row.endswith("192.0.2.1 (token aaaaaaaa)")
