"""Follows a job to its end and exits with its outcome."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import typer
from rich.console import RenderableType

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse
from training_service.client.cli import exit_codes
from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.interrupts import interrupts_kept
from training_service.client.cli.output import remark
from training_service.client.cli.render import lines, panels
from training_service.client.cli.session import Session
from training_service.client.sync import TrainingClient


def follow(session: Session, client: TrainingClient, job: int) -> None:
    """Show a job until it ends, then exit with the code of its outcome."""
    with detach_on_interrupt(session, job), session.output.updating(lines.update, live_now) as update:
        for status in client.watch(job):
            update(status)
    raise typer.Exit(exit_codes.of_outcome(status.status))


@contextmanager
def detach_on_interrupt(session: Session, job: int) -> Iterator[None]:
    """On Ctrl-C in the block, print how to follow the job again, and exit. The job continues."""
    try:
        with interrupts_kept():
            yield
    except KeyboardInterrupt:
        again = session.command(f"watch {job}")
        remark(f"detached; job {job} goes on. To follow it again: {again}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def live_now(status: GetTrainingStatusResponse) -> RenderableType:
    """Draw the current state of a job."""
    return panels.live(status, datetime.now(UTC))
