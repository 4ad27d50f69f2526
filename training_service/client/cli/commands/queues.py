"""trainctl queues, queues set and queues rm."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from training_service.client.cli.commands.catalog import File, about, tables_of
from training_service.client.cli.render import queues as render
from training_service.client.cli.session import session_of

_TABLE = "scheduling.queues"

app = typer.Typer(invoke_without_command=True, help="List, declare and remove queues.")


@app.callback()
def queues(context: typer.Context) -> None:
    """List the queues that jobs of the --project may use, and their parents.

    Without --project, operators see all queues.

    In a pipe, each queue is one line: name, origin (shipped, file or api), version, parent, weight, whether
    the project's jobs may use it (default, yes or no), limits, and quotas, separated by tabs.
    """
    if context.invoked_subcommand is not None:
        return
    session = session_of(context)
    with session.client() as client:
        found = client.catalog.queues(session.project)
        session.output.show_all(found, render.queue, render.queues_table, render.name)


@app.command("set")
def set_queue(context: typer.Context, file: File) -> None:
    """Declare the queues in the tables scheduling.queues.NAME of a file, or change them.

    Only operators may do this. Jobs that were accepted before stay in their queues.
    """
    session = session_of(context)
    tables = tables_of(file, _TABLE)
    with session.client() as client:
        for name, definition in _parents_first(tables):
            with about(f"{_TABLE}.{name}"):
                made = client.catalog.set_queue(name, definition)
            session.output.show(made, render.queue, render.queue, render.name)


@app.command("rm")
def remove_queue(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
) -> None:
    """Remove a declared queue. No jobs may wait or run in it, and no queue may be below it."""
    session = session_of(context)
    with session.client() as client:
        client.catalog.remove_queue(name)
    session.output.note(f"removed queue {name}")


def _parents_first(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables, each after its parent's table.

    Queues in or below a cycle of parents come last: the service refuses the cycle, and the other queues are
    declared before that error.
    """
    waiting = dict(tables)
    while waiting:
        ready = [name for name, table in waiting.items() if str(table.get("parent")) not in waiting]
        for name in ready or list(waiting):
            yield name, waiting.pop(name)
