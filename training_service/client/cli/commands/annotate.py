"""trainctl tag, note, hold and release."""

from typing import Annotated

import typer
from rich.text import Text

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse
from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.render import words
from training_service.client.cli.session import session_of

_HELD = "held"
"""The tag of jobs that the service does not stop for a lack of progress."""


def tag(
    context: typer.Context,
    job: Job,
    add: Annotated[
        list[str] | None, typer.Argument(metavar="TAG...", help="Tags to add, such as best or team=vision.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TAG", help="A tag to remove. Repeatable.")
    ] = None,
) -> None:
    """Add tags to a job in any state, or remove tags from it. `trainctl list --tag TAG` finds the job."""
    if not add and not remove:
        raise typer.BadParameter("give a tag to add, or --remove TAG", param_hint="TAG...")
    session = session_of(context)
    with session.client() as client:
        status = client.annotate(job, add_tags=add or (), remove_tags=remove or ())
    session.output.show(status, _tags, lambda shown: Text(_tags(shown)))


def hold(context: typer.Context, job: Job) -> None:
    """Keep a job from being stopped while it makes no progress, for example under a debugger.

    The job gets the tag `held`. `trainctl release` removes the tag.
    """
    session = session_of(context)
    with session.client() as client:
        status = client.annotate(job, add_tags=[_HELD])
    session.output.show(status, _held, lambda shown: Text(_held(shown)))


def release(context: typer.Context, job: Job) -> None:
    """Let the service watch the progress of a job again, after `trainctl hold`."""
    session = session_of(context)
    with session.client() as client:
        status = client.annotate(job, remove_tags=[_HELD])
    session.output.show(status, _held, lambda shown: Text(_held(shown)))


def note(
    context: typer.Context,
    job: Job,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note; '' removes it.")],
) -> None:
    """Replace the note on a job, in any state."""
    session = session_of(context)
    with session.client() as client:
        status = client.annotate(job, note=text)
    session.output.show(status, _note, lambda shown: Text(_note(shown)))


def _tags(status: GetTrainingStatusResponse) -> str:
    return f"job {status.job_id}: tags: {words.tags(status.tags) or 'none'}"


def _held(status: GetTrainingStatusResponse) -> str:
    watched = "not stopped if it makes no progress" if _HELD in status.tags else "watched again"
    return f"job {status.job_id}: {watched}"


def _note(status: GetTrainingStatusResponse) -> str:
    return f"job {status.job_id}: note: {words.printable(status.note) or 'none'}"
