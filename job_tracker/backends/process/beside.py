"""Runs commands of the service beside the processes of a rank: as the same user, on the same machine."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from job_tracker.domain.errors import NotPossible

_FOLDER = str(Path(sys.executable).parent)


async def execute(pid: int, command: Sequence[str], most_bytes: int) -> bytes:
    """Run the command, and return the beginning of its output. See RankAccess.

    The variable RANK_PID has `pid`, the pid of the rank's first process. `python3` is the Python of the
    service. The command gets no variables of the service's environment. If this call is cancelled, or the
    command prints `most_bytes`, the command and the processes that it has started are killed.
    """
    program = sys.executable if command[0] == "python3" else command[0]
    try:
        child = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={"RANK_PID": str(pid), "PATH": os.pathsep.join((_FOLDER, os.defpath))},
            start_new_session=True,
        )
    except OSError as error:
        raise NotPossible(f"{command[0]} cannot be started: {error}") from error
    assert child.stdout is not None
    output = b""
    try:
        while len(output) < most_bytes and (piece := await child.stdout.read(most_bytes - len(output))):
            output += piece
    finally:
        if len(output) >= most_bytes or not child.stdout.at_eof():
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        await asyncio.shield(child.wait())
    return output
