"""The arguments to put before the command of a program in a container or pod, so that the command runs with
the packages of the program's requirements file.

See requirements_runner.py.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from job_tracker.backends.shared import requirements_runner
from job_tracker.domain.job_spec import Program


def in_image(program: Program | None, image: str, root: str, **options: Any) -> tuple[str, ...]:
    """Return the arguments to put before the command of a program in the image; none if the program has no
    requirements file.

    `root` is a folder in which the instance may write. `options` are further arguments of
    requirements_runner.main.
    """
    if program is None or not program.requirements:
        return ()
    return ("python3", "-I", "-S", "-c", _text(), given(program, root, image=image, **options))


def given(program: Program, root: str, **options: Any) -> str:
    """Return, as JSON, the options of requirements_runner.py for the program."""
    return json.dumps({"root": root, "file": program.requirements, "tree": program.tree, **options})


@cache
def _text() -> str:
    return Path(requirements_runner.__file__).read_text()
