"""trainctl status."""

from datetime import UTC, datetime
from functools import partial

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.render import lines, panels
from training_service.client.cli.session import session_of


def status(context: typer.Context, job: Job) -> None:
    """Show the current state of a job in full."""
    session = session_of(context)
    with session.client() as client:
        answer = client.status(job)
    session.output.show(answer, lines.description, partial(panels.description, now=datetime.now(UTC)))
