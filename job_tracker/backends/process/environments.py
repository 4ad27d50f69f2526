"""Python environments of uploaded programs: those of requirements files, named ones, and places for caches.

An environment of a requirements file is made by the first rank that needs it (requirements_runner.py), below
PROJECT in one folder, and removed when it was not used for a time. A job that runs keeps the lock of its own.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from job_tracker.backends.process import requirements_runner
from job_tracker.domain.job import JobSpec

_LOCK = ".lock"
_CACHES = {
    "XDG_CACHE_HOME": "",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}
"""Variables of hubs and compilers, and the folders for them."""


def find_uv() -> str | None:
    """Return the path of uv: in the environment of the service, or on its PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def runner_of(spec: JobSpec, root: Path) -> tuple[str, ...]:
    """Return the words before a rank's command that give it the packages of its requirements file."""
    program = spec.program
    if program is None or not program.requirements:
        return ()
    uv = find_uv() or "uv"
    folder = root / spec.project
    script = requirements_runner.__file__
    return ("python", "-I", "-S", script, str(folder), uv, program.requirements, program.tree)


def caches_of(spec: JobSpec, root: Path | None) -> Mapping[str, str]:
    """Return the variables for caches that outlive the job, and make their folder. Raises OSError."""
    if root is None or spec.program is None:
        return {}
    folder = root.absolute() / spec.project
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {name: str(folder / inner) for name, inner in _CACHES.items()}


def sweep(root: Path, keep: float, most: int) -> None:
    """Remove environments that were not used for `keep` seconds, and the oldest beyond `most` of a project.

    Those of running jobs stay. Raises OSError.
    """
    for project in _entries(root):
        locks = [path for path in _entries(project) if path.name.endswith(_LOCK)]
        aged = sorted(locks, key=_used_at, reverse=True)
        for number, lock in enumerate(aged):
            if number >= most or _used_at(lock) < time.time() - keep:
                _remove(lock)


def _remove(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = path.with_name(path.name.removesuffix(_LOCK))
            (folder / "complete").unlink(
                missing_ok=True
            )  # first, so that a crash leaves no part of it in use
            shutil.rmtree(folder, ignore_errors=True)
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _used_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []
