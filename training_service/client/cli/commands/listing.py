"""trainctl list."""

from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated

import typer

from training_service._generated.training_service_pb2 import TrainingStatus
from training_service.client.cli.output import remark
from training_service.client.cli.render import lines, panels
from training_service.client.cli.session import session_of

_STATES = TrainingStatus.keys()
_STATE_HELP = f"Only jobs in this state: {', '.join(_STATES)}. Repeatable."
_LARGEST_PAGE = 1000


def _state(word: str) -> str:
    if word not in _STATES:
        raise typer.BadParameter(f"'{word}' is not one of {', '.join(_STATES)}")
    return word


def list_jobs(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", parser=_state, metavar="STATE", help=_STATE_HELP),
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", "-n", metavar="PREFIX", help="Only jobs whose name starts with PREFIX."),
    ] = "",
    algorithm: Annotated[str, typer.Option(help="Only jobs of this algorithm.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of jobs to show.")] = 50,
) -> None:
    """List jobs, newest first.

    In a pipe, each job is one line: id, status, algorithm, name, instances and submission time, separated by
    tabs.
    """
    session = session_of(context)
    with session.client() as client:
        found = client.list(
            [TrainingStatus.Value(word) for word in state or ()],
            name_prefix=name,
            algorithm=algorithm,
            page_size=min(limit + 1, _LARGEST_PAGE),
        )
        shown = islice(found, limit)
        session.output.show_all(shown, lines.row, partial(panels.jobs_table, now=datetime.now(UTC)))
        if next(found, None) is not None:
            remark(f"there are more than {limit} jobs; --limit shows more")
