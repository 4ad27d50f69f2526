"""trainctl watch."""

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.following import follow
from training_service.client.cli.session import session_of


def watch(context: typer.Context, job: Job) -> None:
    """Follow a job to its end, with its progress; the exit code is its outcome.

    Ctrl-C leaves the job alone.
    """
    session = session_of(context)
    with session.client() as client:
        follow(session, client, job)
