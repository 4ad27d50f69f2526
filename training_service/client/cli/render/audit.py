"""Audit events as text."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from training_service._generated.access_service_pb2 import AuditEvent
from training_service.client.cli.render import words

_STYLES = {"denied": "red", "done": "green"}


def event(found: AuditEvent) -> str:
    """Return a line with the columns of an event, separated by tabs."""
    columns = [
        words.moment(found.at),
        found.outcome,
        *(each or "-" for each in (found.caller, found.action, found.target, found.project)),
        str(found.count),
        *(each or "-" for each in (found.detail, found.address, found.token_id, found.request_id)),
    ]
    return "\t".join(map(words.printable, columns))


def events_table(found: Iterable[AuditEvent]) -> RenderableType:
    """Return a table of events."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("TIME", "OUTCOME", "CALLER", "ACTION", "TARGET", "PROJECT", "DETAIL", "FROM"):
        table.add_column(name)
    for each in found:
        times = f" ({each.count} times)" if each.count > 1 else ""
        columns = (each.caller, each.action + times, each.target, each.project, each.detail, _host(each))
        table.add_row(
            words.local_moment(each.at),
            Text(words.printable(each.outcome), style=_STYLES.get(each.outcome, "")),
            *(Text(words.printable(column or "-")) for column in columns),
        )
    return table


def _host(found: AuditEvent) -> str:
    """Return the caller's host, such as 192.0.2.1, and the id of the caller's token if there is one."""
    host = found.address.partition(":")[2] or found.address
    return f"{host} (token {found.token_id})" if found.token_id else host
