"""trainctl status."""

from datetime import UTC, datetime
from functools import partial

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.render import lines, panels, words
from training_service.client.cli.session import session_of


def status(context: typer.Context, job: Job) -> None:
    """Show the state of a job: its progress or, after a failure, the reason and the remedy."""
    session = session_of(context)
    with session.client() as client:
        answer = client.status(job)
    now = datetime.now(UTC)
    session.output.show(
        answer,
        partial(lines.situation, now=now),
        partial(panels.situation, now=now),
        brief=lambda shown: words.status_word(shown.status),
    )
