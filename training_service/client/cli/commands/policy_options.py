"""Options of commands that submit jobs: retries, deadlines, non-finite metrics and the queue."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from google.protobuf.duration_pb2 import Duration

from training_service._generated.training_service_pb2 import Deadlines, NumberPolicy, RetryPolicy

_PANEL = "Attempts and deadlines (by default, those of the service's configuration)"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_LONGEST = timedelta(days=3650)


def duration(text: str) -> timedelta:
    """Parse a duration such as 90, 90s, 1.5m, 2h or 1d. Raises BadParameter."""
    found = _DURATION.fullmatch(text)
    if found and (seconds := float(found[1]) * _UNITS[found[2]]) <= _LONGEST.total_seconds():
        return timedelta(seconds=seconds)
    raise typer.BadParameter(
        f"'{text}' is not a duration of at most {_LONGEST.days}d; write for example 30s, 10m, 2h or 1d"
    )


def _span(help_text: str) -> Any:
    return typer.Option(parser=duration, metavar="TIME", help=help_text, rich_help_panel=_PANEL)


MaxAttempts = Annotated[
    int | None,
    typer.Option(min=1, help="The maximum number of attempts.", rich_help_panel=_PANEL),
]
RetryOn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CATEGORY",
        help="A category of failures to retry, such as crashed, besides lost nodes and similar failures; "
        "'any' retries all failures. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Backoff = Annotated[
    timedelta | None, _span("The pause before the second attempt; it doubles with each further attempt.")
]
MaxBackoff = Annotated[timedelta | None, _span("The longest pause between attempts.")]
QueueDeadline = Annotated[
    timedelta | None, _span("Fail the job if it is still queued after TIME; 0 means no deadline.")
]
StartDeadline = Annotated[
    timedelta | None, _span("Fail an attempt that does not run TIME after its launch; 0 means no deadline.")
]
RunDeadline = Annotated[
    timedelta | None, _span("Fail an attempt that has run for TIME; 0 means no deadline.")
]
ProgressDeadline = Annotated[
    timedelta | None,
    _span("Fail an attempt that makes no progress for TIME; 0: the service learns the time."),
]
OnNonfinite = Annotated[
    str,
    typer.Option(
        metavar="flag|fail",
        help="If training reports NaN or infinity: flag only shows it, fail ends the attempt as diverged.",
        rich_help_panel=_PANEL,
    ),
]
NonfiniteMetrics = Annotated[
    list[str] | None,
    typer.Option(
        "--nonfinite-metric",
        metavar="PATTERN",
        help="A metric that counts for --on-nonfinite fail, such as loss or 'val/*'. Default: '*loss*'. "
        "Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Queue = Annotated[
    str, typer.Option(metavar="NAME", help="The queue to wait in; by default, that of the project.")
]
Priority = Annotated[
    str,
    typer.Option(metavar="CLASS", help="The priority in the queue, such as low, normal or high."),
]
Expected = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration,
        metavar="TIME",
        help="How long the job is expected to run, such as 90m or 2h. It may then start earlier, in gaps.",
    ),
]
Flavor = Annotated[
    str,
    typer.Option(metavar="NAME", help="The kind of machine to run on; by default, the first kind with room."),
]


def number_policy(on_nonfinite: str, metrics: Sequence[str] | None) -> NumberPolicy | None:
    """Build the NumberPolicy of a request; None if no option is given."""
    policy = NumberPolicy(on_nonfinite=on_nonfinite, metrics=metrics or ())
    return policy if policy.ListFields() else None


def retry_policy(
    max_attempts: int | None,
    retry_on: Sequence[str] | None,
    backoff: timedelta | None,
    max_backoff: timedelta | None,
) -> RetryPolicy | None:
    """Build the RetryPolicy of a request; None if no option is given."""
    policy = RetryPolicy(
        max_attempts=max_attempts,
        retry_on=retry_on or (),
        backoff=_message(backoff),
        max_backoff=_message(max_backoff),
    )
    return policy if policy.ListFields() else None


def deadlines(
    queue: timedelta | None, start: timedelta | None, run: timedelta | None, progress: timedelta | None
) -> Deadlines | None:
    """Build the Deadlines of a request; None if no option is given."""
    message = Deadlines(
        queue=_message(queue), start=_message(start), run=_message(run), progress=_message(progress)
    )
    return message if message.ListFields() else None


def _message(span: timedelta | None) -> Duration | None:
    if span is None:
        return None
    message = Duration()
    message.FromTimedelta(span)
    return message
