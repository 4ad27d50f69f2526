"""Arguments that several commands take."""

from typing import Annotated

import typer

# 0 and less never are jobs, more does not fit the wire.
Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's id.", min=1, max=2**31 - 1)]
