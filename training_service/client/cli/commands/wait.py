"""trainctl wait."""

from typing import Annotated

import typer

from training_service.client.cli import exit_codes
from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.following import job_goes_on, live_now
from training_service.client.cli.render import lines
from training_service.client.cli.session import session_of


def wait(
    context: typer.Context,
    job: Job,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How long at most; 0 only looks.")
    ] = None,
) -> None:
    """Wait in silence until a job has ended, then say how; the exit code is its outcome."""
    session = session_of(context)
    with session.client() as client, job_goes_on(session, job):
        status = client.wait(job, timeout=timeout)
    session.output.show(status, lines.update, live_now)
    raise typer.Exit(exit_codes.of_outcome(status.status))
