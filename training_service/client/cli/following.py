"""To the end of a job, and out of trainctl with its outcome."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import typer
from rich.console import RenderableType

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse
from training_service.client.cli import exit_codes
from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.output import remark
from training_service.client.cli.render import lines, panels
from training_service.client.cli.session import Session
from training_service.client.sync import TrainingClient


def follow(session: Session, client: TrainingClient, job: int) -> None:
    """Shows a job to its end, then leaves trainctl with its outcome as the exit code."""
    with job_goes_on(session, job), session.output.updating(lines.update, live_now) as update:
        for status in client.watch(job):
            update(status)
    raise typer.Exit(exit_codes.of_outcome(status.status))


@contextmanager
def job_goes_on(session: Session, job: int) -> Iterator[None]:
    """Within it, Ctrl-C leaves trainctl but not the job, and says how to come back."""
    try:
        yield
    except KeyboardInterrupt:
        back = session.command(f"watch {job}")
        remark(f"detached; job {job} goes on. Come back to it with: {back}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def live_now(status: GetTrainingStatusResponse) -> RenderableType:
    """The picture of a job at this moment."""
    return panels.live(status, datetime.now(UTC))
