"""trainctl watch."""

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.following import follow
from training_service.client.cli.session import session_of


def watch(context: typer.Context, job: Job) -> None:
    """Show a job's progress until it ends; its outcome is the exit code.

    Ctrl-C ends this command, not the job.
    """
    session = session_of(context)
    with session.client() as client:
        follow(session, client, job)
