"""Parses times in options."""

from datetime import UTC, datetime

import typer

from training_service.client.cli.commands.policy_options import duration

TIME_HELP = "2h or 7d ago, 2026-11-20, 2026-11-20T10:00 (local time) or 2026-11-20T10:00Z"


def moment(text: str) -> datetime:
    """Parse a time: a duration before now, or a date with or without a time of day. Raises BadParameter."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.now(UTC) - duration(text)
    except typer.BadParameter:
        raise typer.BadParameter(f"'{text}' is not a time; write {TIME_HELP}") from None
