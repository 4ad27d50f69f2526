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

        def delete(job: int) -> _Deleted:
            client.delete(job)
            return _Deleted(job)

        for_each(jobs, delete, lambda deleted: session.output.show(deleted, _line, _sentence))


def _line(deleted: _Deleted) -> str:
    return f"job {deleted.job_id}: deleted"


def _sentence(deleted: _Deleted) -> Text:
    return Text(f"Job {deleted.job_id} is deleted.")
