"""Real trainings of a service that wait after a step, so that a test can act between two steps."""

import os
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "held.py"
_PYTHON = """#!/bin/sh
case "$1 $2" in
"-m "*.train) shift && exec {python}/python {program} {folder} "$@" ;;
esac
exec {python}/python "$@"
"""


class Held:
    """A stand-in for `python` that runs trainings with `programs/held.py`."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder / "held"
        self._folder.mkdir()
        self.path = f"{self._folder}{os.pathsep}{path}"
        """A PATH whose `python` is the stand-in, and then that of `path`."""
        python = self._folder / "python"
        python.write_text(
            _PYTHON.format(python=path.split(os.pathsep)[0], program=PROGRAM, folder=self._folder)
        )
        python.chmod(0o755)

    def hold(self, attempt: int, step: int) -> None:
        """Let the master wait in this attempt, before it starts, after it has reported this step."""
        (self._folder / str(attempt)).write_text(str(step))

    def release(self, attempt: int) -> None:
        """Let the master go on."""
        (self._folder / str(attempt)).unlink()
