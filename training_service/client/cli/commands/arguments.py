"""Arguments of several commands."""

from typing import Annotated

import typer

from training_service.client.cli.render.words import printable

_LARGEST_ID = 2**31 - 1
_LONGEST_QUOTE = 50


def _job_id(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_QUOTE else 0
    if not 0 < number <= _LARGEST_ID:
        given = printable(text[:_LONGEST_QUOTE])
        raise typer.BadParameter(f"{given} is not a job id; ids are numbers from 1 on, as in `trainctl list`")
    return number


Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's id.", parser=_job_id)]
Jobs = Annotated[list[int], typer.Argument(metavar="JOB...", help="The jobs' ids.", parser=_job_id)]
