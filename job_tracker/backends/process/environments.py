"""Python environments of uploaded programs, and folders for caches.

A program may have a requirements file, or name a configured environment.

The first rank that needs the environment of a requirements file makes this environment in the folder of the
project (shared/requirements_runner.py). Such an environment is removed when it was not used for a while, but
not while a running job holds its lock.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from job_tracker.backends.shared import requirements_runner
from job_tracker.backends.shared.requirements import given
from job_tracker.domain.job_spec import JobSpec

_CACHES = {
    "XDG_CACHE_HOME": "",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}
"""Variables that set the cache folders of hubs and compilers, and the names of these folders."""


def find_uv() -> str | None:
    """Return the path of uv, from the Python environment of the service or from its PATH; None if there is
    none.
    """
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def runner_of(spec: JobSpec, root: Path) -> tuple[str, ...]:
    """Return the arguments to put before a rank's command, so that the command runs with the packages
    of the program's requirements file; empty without such a file.
    """
    program = spec.program
    if program is None or not program.requirements:
        return ()
    uv = find_uv() or "uv"
    options = given(program, str(root / spec.project), uv=uv)
    return ("python", "-I", "-S", requirements_runner.__file__, options)


def caches_of(spec: JobSpec, root: Path | None) -> Mapping[str, str]:
    """Make the folder for caches that outlive the job, and return the variables for them.

    The result is empty for jobs without an uploaded program, or if `root` is None. Raises OSError if the
    folder cannot be made.
    """
    if root is None or spec.program is None:
        return {}
    folder = root.absolute() / spec.project
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {name: str(folder / inner) for name, inner in _CACHES.items()}


def sweep(root: Path, keep: float, most: int) -> None:
    """Remove environments that were not used for `keep` seconds.

    Of the others, keep at most `most` for each project: those that were used last. Environments of running
    jobs stay. Raises OSError for an error of the disk.
    """
    for project in _entries(root):
        requirements_runner.sweep(str(project), keep, most)


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []
