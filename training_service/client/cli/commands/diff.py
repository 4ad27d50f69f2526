"""trainctl diff."""

import sys

import typer

from training_service._generated.training_service_pb2 import GetTrainingChangesResponse
from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.output import Form
from training_service.client.cli.render import words
from training_service.client.cli.session import session_of


def diff(context: typer.Context, job: Job) -> None:
    """Print the uncommitted changes with which a job of `trainctl run` was submitted.

    These are the changes of tracked files since the commit that `trainctl artifacts` shows. In a pipe or a
    file, they have the format of `git diff`:

    trainctl diff 7 | git apply
    """
    session = session_of(context)
    with session.client() as client:
        text = b"".join(client.changes(job))
    output = session.output
    if output.form is Form.JSON:
        output.show_text(GetTrainingChangesResponse(content=text), "")
    elif output.on_terminal:
        lines = words.printable_lines(text.decode(errors="backslashreplace"))
        output.pass_through("".join(f"{line}\n" for line in lines))
    else:
        sys.stdout.buffer.write(text)
