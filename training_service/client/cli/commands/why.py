"""trainctl why."""

from functools import partial

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.render import waiting
from training_service.client.cli.session import session_of


def why(context: typer.Context, job: Job) -> None:
    """Explain why a queued job waits: the reasons, the promised start, and who holds the capacity.

    For a job that is not in the queue, show its state, or how it ended.
    """
    session = session_of(context)
    with session.client() as client:
        explained = client.why(job)
        status = None if explained.reasons or explained.stopped else client.status(job)
    otherwise = waiting.not_queued(status, session.command(f"status {job}")) if status else None
    session.output.show(
        explained,
        partial(waiting.line, otherwise=otherwise),
        partial(waiting.panel, otherwise=otherwise),
        waiting.codes,
    )
