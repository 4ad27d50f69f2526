"""Arguments of several commands."""

from typing import Annotated

import typer

# Job ids are positive 32-bit integers.
Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's id.", min=1, max=2**31 - 1)]
Jobs = Annotated[list[int], typer.Argument(metavar="JOB...", help="The jobs' ids.", min=1, max=2**31 - 1)]
