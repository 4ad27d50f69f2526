"""trainctl describe."""

from datetime import UTC, datetime
from functools import partial

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.render import lines, panels
from training_service.client.cli.session import session_of


def describe(context: typer.Context, job: Job) -> None:
    """Show the request of a job, and its history: every change of its state, with time and reason."""
    session = session_of(context)
    with session.client() as client:
        status = client.status(job)
    session.output.show(status, lines.description, partial(panels.description, now=datetime.now(UTC)))
