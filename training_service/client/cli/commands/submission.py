"""Options and functions of the commands that submit a job."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.text import Text

from training_service._generated.training_service_pb2 import TrainResponse
from training_service.client.cli.following import follow
from training_service.client.cli.interrupts import interrupts_kept
from training_service.client.cli.session import Session
from training_service.client.errors import DeadlineExceeded, Unavailable
from training_service.client.sync import TrainingClient

RequestKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Repeating a submission with the same key returns the same job."),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Follow the job until it ends; its outcome is the exit code."),
]

Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        "-t",
        metavar="TAG",
        help="A tag by which to find the job, such as best or team=vision. Repeatable.",
    ),
]


@contextmanager
def repeatable(key: str) -> Iterator[None]:
    """If the block gets no answer or is interrupted, add a note to the error: how to repeat the submission
    with the key.
    """
    try:
        with interrupts_kept():
            yield
    except (DeadlineExceeded, Unavailable) as error:
        # The service may have queued the job and gone away before it could answer.
        error.add_note(_again(key))
        raise
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"If the job was queued by then, it goes on. {_again(key)}")
        raise


def _again(key: str) -> str:
    return f"To repeat this without queueing the job twice, add --request-key {key}."


def report(session: Session, client: TrainingClient, job: int, *, followed: bool) -> None:
    """Print the id of a submitted job. If `followed`, also follow the job, and exit with its outcome."""

    def summary(answer: TrainResponse) -> Text:
        hint = "" if followed else f" To follow it: {session.command(f'watch {answer.job_id}')}"
        return Text(f"Submitted job {answer.job_id}.{hint}")

    session.output.show(TrainResponse(job_id=job), lambda answer: str(answer.job_id), summary)
    if followed:
        follow(session, client, job)
