"""Does the same to several jobs."""

from collections.abc import Callable, Sequence

import typer

from training_service.client.cli import exit_codes
from training_service.client.cli.boundary import explanation
from training_service.client.cli.output import remark
from training_service.client.errors import TrainingServiceError, Unavailable, Untrusted


def for_each(jobs: Sequence[int], action: Callable[[int], None]) -> None:
    """Call the action for each job once. Failures are reported at once, and the first gives the exit code.

    Raises Unavailable and Untrusted for the first job that meets it, since the others would, too.
    """
    wanted = list(dict.fromkeys(jobs))
    first: TrainingServiceError | None = None
    for done, job in enumerate(wanted):
        try:
            action(job)
        except (Unavailable, Untrusted) as error:
            if left := wanted[done + 1 :]:
                error.add_note(f"Not tried: {', '.join(map(str, left))}")
            raise
        except TrainingServiceError as error:
            text = explanation(error)
            names_job = len(wanted) == 1 or text.lower().startswith(f"job {job} ")
            remark(text if names_job else f"job {job}: {text}")
            first = first or error
    if first is not None:
        raise typer.Exit(exit_codes.of_error(first))
