"""trainctl why."""

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.render import waiting
from training_service.client.cli.session import session_of


def why(context: typer.Context, job: Job) -> None:
    """Explain why a queued job waits: the reasons, the promised start, and who holds the capacity."""
    session = session_of(context)
    with session.client() as client:
        explained = client.why(job)
    session.output.show(explained, waiting.line, waiting.panel, waiting.codes)
