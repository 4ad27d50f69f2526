"""trainctl wait."""

from typing import Annotated

import typer

from training_service.client.cli import exit_codes
from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.following import detach_on_interrupt, live_now
from training_service.client.cli.output import silent
from training_service.client.cli.render import lines
from training_service.client.cli.session import session_of


def wait(
    context: typer.Context,
    job: Job,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="The maximum time to wait; 0 only checks.")
    ] = None,
) -> None:
    """Wait until a job has ended, then print its outcome, which is also the exit code."""
    session = session_of(context)
    with session.client() as client, detach_on_interrupt(session, job):
        status = client.wait(job, timeout=timeout)
    session.output.show(status, lines.update, live_now, brief=silent)
    raise typer.Exit(exit_codes.of_outcome(status.status))
