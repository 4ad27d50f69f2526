"""trainctl audit."""

from itertools import islice
from typing import Annotated, Any

import typer

from training_service.client.cli.commands.moments import TIME_HELP, moment
from training_service.client.cli.output import remark
from training_service.client.cli.render import audit as render
from training_service.client.cli.session import session_of

_LARGEST_PAGE = 1000


def audit(
    context: typer.Context,
    since: Annotated[
        Any,
        typer.Option(parser=moment, metavar="TIME", help=f"Only events since TIME: {TIME_HELP}."),
    ] = None,
    until: Annotated[
        Any, typer.Option(parser=moment, metavar="TIME", help="Only events before TIME.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Only events of this caller.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of events to show.")] = 50,
) -> None:
    """List changes, denials, and reads of logs and artifacts, with their callers, newest first.

    Shows the events of the --project. Without --project, operators see all events, and other users the events
    of their default project.

    In a pipe, each event is one line: time, outcome, caller, action, target, project, count, detail, host,
    token and request id, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        project = session.project
        if not project and not (who := client.access.whoami()).is_operator:
            project = who.default_project
        found = client.access.events(
            project, caller=by, since=since, until=until, page_size=min(limit + 1, _LARGEST_PAGE)
        )
        session.output.show_all(islice(found, limit), render.event, render.events_table)
        if next(found, None) is not None:
            remark(f"there are more than {limit} events; --limit shows more")
