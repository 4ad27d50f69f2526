"""Options of `trainctl submit` for retries and deadlines."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from google.protobuf.duration_pb2 import Duration

from training_service._generated.training_service_pb2 import Deadlines, RetryPolicy

_PANEL = "Attempts and deadlines; what is left out is as the service is configured"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_LONGEST = timedelta(days=3650)


def duration(text: str) -> timedelta:
    """Parse a span of time such as 90, 90s, 1.5m, 2h or 1d. Raises BadParameter."""
    found = _DURATION.fullmatch(text)
    if found and (seconds := float(found[1]) * _UNITS[found[2]]) <= _LONGEST.total_seconds():
        return timedelta(seconds=seconds)
    raise typer.BadParameter(
        f"'{text}' is not a span of time up to {_LONGEST.days}d, as in 30s, 10m, 2h or 1d"
    )


def _span(help_text: str) -> Any:
    return typer.Option(parser=duration, metavar="TIME", help=help_text, rich_help_panel=_PANEL)


MaxAttempts = Annotated[
    int | None,
    typer.Option(min=1, help="How often the group may be started in all.", rich_help_panel=_PANEL),
]
RetryOn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CATEGORY",
        help="A diagnosis that is worth another attempt besides lost nodes and the like, as in crashed; any: "
        "whatever happens. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Backoff = Annotated[
    timedelta | None, _span("The wait before the second attempt; it doubles with each further one.")
]
MaxBackoff = Annotated[timedelta | None, _span("The longest such wait.")]
QueueDeadline = Annotated[
    timedelta | None, _span("Fail if the job has waited so long in the queue; 0: wait for ever.")
]
StartDeadline = Annotated[
    timedelta | None,
    _span("Fail if an attempt has not come to run so long after its launch; 0: wait for ever."),
]
RunDeadline = Annotated[timedelta | None, _span("Fail if an attempt has run so long; 0: run for ever.")]


def retry_policy(
    max_attempts: int | None,
    retry_on: Sequence[str] | None,
    backoff: timedelta | None,
    max_backoff: timedelta | None,
) -> RetryPolicy | None:
    """Build the message; None if no option is given."""
    policy = RetryPolicy(
        max_attempts=max_attempts,
        retry_on=retry_on or (),
        backoff=_message(backoff),
        max_backoff=_message(max_backoff),
    )
    return policy if policy.ListFields() else None


def deadlines(queue: timedelta | None, start: timedelta | None, run: timedelta | None) -> Deadlines | None:
    """Build the message; None if no option is given."""
    message = Deadlines(queue=_message(queue), start=_message(start), run=_message(run))
    return message if message.ListFields() else None


def _message(span: timedelta | None) -> Duration | None:
    if span is None:
        return None
    message = Duration()
    message.FromTimedelta(span)
    return message
