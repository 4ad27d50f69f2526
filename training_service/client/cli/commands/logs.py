"""trainctl logs."""

from typing import Annotated

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.session import session_of


def logs(
    context: typer.Context,
    job: Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for what is still to come, until the job ends.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="Which process; 0 is the master.")] = 0,
    attempt: Annotated[
        int, typer.Option(min=0, help="Which attempt; 0 is the last, and with -f those that follow.")
    ] = 0,
    tail: Annotated[int | None, typer.Option(min=0, help="Begin with the last so many lines.")] = None,
) -> None:
    """Show what one process of a job printed, exactly as it printed it.

    If the service goes away in the middle this ends with exit code 4 after the last line that it
    sent; no line is shown twice.
    """
    session = session_of(context)
    with session.client() as client:
        for chunk in client.logs(job, rank=rank, attempt=attempt, follow=follow, tail_lines=tail):
            session.output.show_text(chunk, chunk.text)
