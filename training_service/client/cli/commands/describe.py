"""trainctl describe."""

from datetime import UTC, datetime
from functools import partial

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.output import Form
from training_service.client.cli.render import lines, panels
from training_service.client.cli.session import session_of


def describe(context: typer.Context, job: Job) -> None:
    """Show the request of a job, and its history: every change of its state, with time and reason."""
    session = session_of(context)
    with session.client() as client:
        status = client.status(job)
        # Only those facts of a program that the status lacks; --json is the status alone.
        shows_facts = session.output.form in (Form.TERMINAL, Form.PLAIN)
        made_from = client.artifacts(job).provenance if shows_facts else None
    session.output.show(
        status,
        partial(lines.description, made_from=made_from),
        partial(panels.description, made_from=made_from, now=datetime.now(UTC)),
    )
