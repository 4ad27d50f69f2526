"""trainctl cancel."""

import typer
from rich.text import Text

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse, TrainingStatus
from training_service.client.cli.commands.arguments import Jobs
from training_service.client.cli.commands.several import for_each
from training_service.client.cli.render import lines, words
from training_service.client.cli.session import session_of


def cancel(context: typer.Context, jobs: Jobs) -> None:
    """Cancel jobs. This has no effect on a job that has ended.

    The command may return before the processes of a running job have stopped. To wait for their end, use
    `trainctl wait`.
    """
    session = session_of(context)
    with session.client() as client:
        for_each(jobs, client.cancel, lambda status: session.output.show(status, lines.update, _summary))


def _summary(status: GetTrainingStatusResponse) -> Text:
    word = words.status_word(status.status)
    if status.status == TrainingStatus.cancelled:
        return Text(f"Job {status.job_id} is cancelled.")
    if status.status in (TrainingStatus.succeed, TrainingStatus.failure):
        return Text(f"Job {status.job_id} had already ended: {word}.")
    return Text(f"Job {status.job_id} is being cancelled. Its status was {word}.")
