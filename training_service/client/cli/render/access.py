"""Tokens, projects, report keys and callers as text."""

from collections.abc import Callable, Iterable

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from training_service._generated.access_service_pb2 import (
    CreateTokenResponse,
    Project,
    ReportKey,
    Role,
    Token,
    WhoAmIResponse,
)
from training_service.client.cli.render import words


def caller(who: WhoAmIResponse) -> str:
    """Return lines that describe the caller."""
    known = {"open": "without a token or certificate", "token": f"token {words.printable(who.token_id)}"}
    by = known.get(who.means, words.printable(who.means))
    lines = [f"{words.printable(who.name)} ({by})"]
    if who.is_operator:
        lines.append("operator in all projects")
    lines += [f"{role_word(role)} in {words.printable(name)}" for name, role in sorted(who.roles.items())]
    if who.roles_left_out:
        lines.append(f"a role in {who.roles_left_out} further projects, see `trainctl project list`")
    if len(lines) == 1:
        lines.append("no role in any project")
    return "\n".join(lines)


def role_word(role: Role.ValueType) -> str:
    """Return the name of a role; "-" for none."""
    known = Role.DESCRIPTOR.values_by_number.get(role)
    if known is None:
        return f"role {role}"
    return known.name if role else "-"


def new_token(made: CreateTokenResponse) -> str:
    """Return the text of a new token."""
    return words.printable(made.text)


def token(found: Token) -> str:
    """Return a line with the columns of a token, separated by tabs."""
    return "\t".join(map(words.printable, _columns(found, words.moment)))


def tokens_table(found: Iterable[Token]) -> RenderableType:
    """Return a table of tokens."""
    table = _table("ID", "NAME", "PROJECT", "ROLE", "STATE", "CREATED BY", "CREATED", "EXPIRES", "LAST USE")
    for each in found:
        table.add_row(*map(_cell, _columns(each, words.local_moment)))
    return table


def project(found: Project) -> str:
    """Return a line with the columns of a project, separated by tabs."""
    return "\t".join(map(words.printable, _facts(found)))


def projects_table(found: Iterable[Project]) -> RenderableType:
    """Return a table of projects."""
    table = _table("PROJECT", "YOUR ROLE", "MAX QUEUED", "DECLARED", "MEMBERS")
    for each in found:
        table.add_row(*map(_cell, _facts(each)))
    return table


def report_key(found: ReportKey) -> str:
    """Return a line with the columns of a key of report tokens, separated by tabs."""
    return "\t".join(map(words.printable, _key_columns(found, words.moment)))


def report_keys_table(found: Iterable[ReportKey]) -> RenderableType:
    """Return a table of keys of report tokens."""
    table = _table("ID", "STATE", "LIVE ATTEMPTS", "MADE BY", "MADE", "REPLACED", "REMOVED")
    for each in found:
        table.add_row(*map(_cell, _key_columns(each, words.local_moment)))
    return table


def _key_columns(found: ReportKey, moment: Callable[[Timestamp], str]) -> list[str]:
    def written(name: str) -> str:
        at: Timestamp = getattr(found, name)
        return moment(at) if found.HasField(name) else "-"  # type: ignore[arg-type]

    is_replaced = found.HasField("replaced_at")
    return [
        str(found.id),
        "removed" if found.HasField("removed_at") else "replaced" if is_replaced else "current",
        str(found.attempts) if is_replaced else "-",
        found.made_by or "-",
        written("made_at"),
        written("replaced_at"),
        written("removed_at"),
    ]


def _columns(found: Token, moment: Callable[[Timestamp], str]) -> list[str]:
    def written(name: str) -> str:
        at: Timestamp = getattr(found, name)
        return moment(at) if found.HasField(name) else "-"  # type: ignore[arg-type]

    return [
        found.id,
        found.name,
        found.project or "-",
        role_word(found.role),
        "revoked" if found.HasField("revoked_at") else "expired" if _has_expired(found) else "valid",
        found.created_by,
        written("created_at"),
        written("expires_at"),
        written("used_at"),
    ]


def _facts(found: Project) -> list[str]:
    members = ", ".join(f"{name}={role_word(role)}" for name, role in sorted(found.members.items()))
    return [
        found.name,
        role_word(found.your_role),
        str(found.max_queued or "-"),
        "file" if found.is_declared_in_file else "api",
        members or "-",
    ]


def _has_expired(found: Token) -> bool:
    now = Timestamp()
    now.GetCurrentTime()
    return found.HasField("expires_at") and found.expires_at.ToNanoseconds() <= now.ToNanoseconds()


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name)
    return table


def _cell(text: str) -> Text:
    return Text(words.printable(text))
