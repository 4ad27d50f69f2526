"""trainctl list."""

from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated

import typer

from training_service._generated.training_service_pb2 import TrainingStatus
from training_service.client.cli.commands.moments import TIME_HELP, moment
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
        typer.Option("--state", parser=_state, metavar="STATE", help=_STATE_HELP),
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="PREFIX", help="Only jobs whose name starts with PREFIX."),
    ] = "",
    algorithm: Annotated[str, typer.Option(help="Only jobs of this algorithm.")] = "",
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", "-t", metavar="TAG", help="Only jobs with this tag. If repeated, with all of them."
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help=f"Only jobs submitted since TIME: {TIME_HELP}."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="Only jobs submitted before TIME."),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only jobs that you submitted.")] = False,
    by: Annotated[str, typer.Option(metavar="NAME", help="Only jobs that this caller submitted.")] = "",
    all_projects: Annotated[
        bool,
        typer.Option("--all-projects", "-A", help="Jobs of all projects in which you have a role."),
    ] = False,
    before: Annotated[
        int, typer.Option(metavar="JOB", min=0, max=2**31 - 1, help="Only jobs submitted before this job.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of jobs to show.")] = 50,
) -> None:
    """List the jobs of a project, newest first.

    In a pipe, each job is one line: id, status, algorithm, name, instances, submission time, project,
    submitter and tags, separated by tabs.
    """
    if mine and by:
        raise typer.BadParameter("give either --mine or --by, not both", param_hint="--mine")
    session = session_of(context)
    with session.client() as client:
        found = client.list(
            [TrainingStatus.Value(word) for word in state or ()],
            name_prefix=name,
            algorithm=algorithm,
            submitted_by=by,
            all_projects=all_projects,
            page_size=min(limit + 1, _LARGEST_PAGE),
            since=since,
            until=until,
            mine=mine,
            tags=tag or (),
            before_job=before,
        )
        shown = islice(found, limit)
        drawn = partial(panels.jobs_table, now=datetime.now(UTC), with_projects=all_projects)
        session.output.show_all(shown, lines.row, drawn)
        following = next(found, None)
        if following is not None:
            session.output.note(
                f"there are more than {limit} jobs; --limit shows more, and --before {following.job_id + 1} "
                "shows the next jobs"
            )
