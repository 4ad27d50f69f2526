"""trainctl queue."""

from typing import Annotated

import typer

from training_service.client.cli.render import queue as render
from training_service.client.cli.session import session_of


def queue(
    context: typer.Context,
    name: Annotated[str, typer.Option("--queue", metavar="NAME", help="Only this queue.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of jobs to show.")] = 50,
) -> None:
    """Show the present queue: what each queue uses, and which jobs wait, why, and until when.

    The jobs are from the --project or, without --project, from all projects in which you have a role.

    In a pipe, each waiting job is one line: place, id, queue, project, priority, instances, code of the
    reason, expected start, the time before which it starts in nine of ten cases, the kind of run times from
    which these two times are computed, and name, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        found = client.queue(name, limit=limit)
    session.output.show(found, render.lines, render.tables, render.ids)
    if found.next_page_token:
        session.output.note(f"more jobs wait; --limit {2 * limit} shows more")
