"""Starts the processes of one instance of a Horovod group: `python -m trainer_kit.horovod_instance COMMAND…`.

There are HOROVOD_LOCAL_SIZE processes. HOROVOD_RANK is the rank of the first one. Each process gets its own
rank in this variable.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import NoReturn

from trainer_kit import environment
from trainer_kit.termination import SIGNALS, exit_code_for

MOST_PROCESSES = 256
GRACE_SECONDS = 10.0
"""The time in seconds that the other processes get to end by themselves after one has failed."""


def main() -> NoReturn:
    """Exit with 0 if all processes succeed, and otherwise with the code of the first one that failed."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m trainer_kit.horovod_instance COMMAND…")
    sys.exit(asyncio.run(_run(command)))


async def _run(command: Sequence[str]) -> int:
    """Run the processes until all have ended. A signal is passed on to them."""
    size = environment.integer("HOROVOD_LOCAL_SIZE", at_least=1, at_most=MOST_PROCESSES)
    first = environment.integer("HOROVOD_RANK", at_least=0, at_most=MOST_PROCESSES * 100_000)
    processes: list[Process] = []
    received: list[signal.Signals] = []

    def pass_on(signum: signal.Signals) -> None:
        received.append(signum)
        _send(processes, signum)

    for signum in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, pass_on, signum)
    try:
        for local in range(size):
            processes.append(await _start(command, first + local, local))
            for signum in received:  # the signal came before this process had started
                _send(processes[-1:], signum)
        return await _outcome_of(processes, received)
    finally:
        _send(processes, signal.SIGKILL)


async def _start(command: Sequence[str], rank: int, local_rank: int) -> Process:
    own = {"RANK": str(rank), "LOCAL_RANK": str(local_rank)}
    return await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **own, **{f"HOROVOD_{name}": value for name, value in own.items()}}
    )


async def _outcome_of(processes: list[Process], received: Sequence[signal.Signals]) -> int:
    """Wait for all processes. When one fails, end the others, which would otherwise wait for it.

    After a signal, let each process end by itself, because one of them may still be saving.
    """
    failed = 0
    for ended in asyncio.as_completed([process.wait() for process in processes]):
        code = await ended
        if code and not failed:
            failed = code
            if received:
                continue
            _send(processes, signal.SIGTERM)
            asyncio.get_running_loop().call_later(GRACE_SECONDS, _send, processes, signal.SIGKILL)
    return failed if failed >= 0 else exit_code_for(-failed)


def _send(processes: list[Process], signum: signal.Signals) -> None:
    for process in processes:
        if process.returncode is None:
            process.send_signal(signum)


if __name__ == "__main__":
    main()
