"""trainctl list."""

from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated

import typer

from training_service._generated.training_service_pb2 import TrainingStatus
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
    by: Annotated[str, typer.Option(metavar="NAME", help="Only jobs that this caller submitted.")] = "",
    all_projects: Annotated[
        bool,
        typer.Option("--all-projects", "-A", help="Jobs of all projects in which you have a role."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of jobs to show.")] = 50,
) -> None:
    """List the jobs of a project, newest first.

    In a pipe, each job is one line: id, status, algorithm, name, instances, submission time, project and
    submitter, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        found = client.list(
            [TrainingStatus.Value(word) for word in state or ()],
            name_prefix=name,
            algorithm=algorithm,
            submitted_by=by,
            all_projects=all_projects,
            page_size=min(limit + 1, _LARGEST_PAGE),
        )
        shown = islice(found, limit)
        drawn = partial(panels.jobs_table, now=datetime.now(UTC), with_projects=all_projects)
        session.output.show_all(shown, lines.row, drawn)
        if next(found, None) is not None:
            session.output.note(f"there are more than {limit} jobs; --limit shows more")
