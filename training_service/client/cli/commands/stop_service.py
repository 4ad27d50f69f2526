"""trainctl stop-service."""

import typer

from training_service.client.cli.background import BackgroundService
from training_service.client.cli.output import remark


def stop_service() -> None:
    """Stop the service that `trainctl run` started on this machine. Running jobs continue.

    The next `trainctl run` starts it again, with its jobs.
    """
    pid = BackgroundService().stop()
    if pid is None:
        remark("no service that trainctl has started is running")
        raise typer.Exit(1)
    remark(f"stopped the service, pid {pid}; running jobs go on")
