"""trainctl rm."""

import json
from dataclasses import dataclass

import typer
from rich.text import Text

from training_service.client.cli.commands.arguments import Jobs
from training_service.client.cli.commands.several import for_each
from training_service.client.cli.session import session_of


@dataclass(frozen=True)
class _Deleted:
    job_id: int

    def as_json(self) -> str:
        return json.dumps({"job_id": self.job_id})


def rm(context: typer.Context, jobs: Jobs) -> None:
    """Delete jobs that have ended: their status, metrics and logs. Their models and checkpoints stay."""
    session = session_of(context)
    with session.client() as client:

        def delete(job: int) -> None:
            client.delete(job)
            session.output.show(
                _Deleted(job),
                lambda deleted: f"job {deleted.job_id}: deleted",
                lambda deleted: Text(f"Job {deleted.job_id} is deleted."),
            )

        for_each(jobs, delete)
