"""Mpirun starts this program instead of ssh: it lets a host run a daemon, and ends when the daemon ends."""

import asyncio
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainer_kit import environment
from trainer_kit.meeting import patience
from trainer_kit.mpi.channel import Channel
from trainer_kit.mpi.place import Place

HOST_PREFIX = "instance-"
ORTED = "orted"
FAILURE = 1


class Daemon(NamedTuple):
    """The daemon that mpirun starts on a host."""

    arguments: list[str]
    relocated: bool
    """Whether Open MPI was moved from its build-time folder, so that it needs OPAL_PREFIX."""


def environment_of(place: Place) -> dict[str, str]:
    """Return the environment variables by which agents on the same machine reach this launcher."""
    return {"MPI_AGENT_HOST": place.meeting.host if place.meeting.on_loopback else "127.0.0.1"}


def main() -> None:
    """Read the arguments HOST COMMAND…; exit with the daemon's code, or 1 if the launcher is gone."""
    host, *command = sys.argv[1:]
    try:
        code = asyncio.run(_ask(int(host.removeprefix(HOST_PREFIX)), daemon_of(command)))
    except (OSError, EOFError):
        code = FAILURE
    sys.exit(code)


async def _ask(instance: int, daemon: Daemon) -> int:
    channel = await _reach_launcher()
    await channel.send(on=instance, run=daemon._asdict())
    code: int = (await channel.receive())["ended"]
    return code


async def _reach_launcher() -> Channel:
    """Connect to the launcher. A handshake that takes too long is repeated, up to the group's time-out."""
    host = environment.text("MPI_AGENT_HOST")
    port = environment.integer("MASTER_PORT", default=12356, at_least=1, at_most=65_535)
    token = environment.text("GROUP_TOKEN")
    async with asyncio.timeout(patience()):
        while True:
            with suppress(TimeoutError):
                return await Channel.connected(host, port, token)


def daemon_of(command: Sequence[str]) -> Daemon:
    """Parse the command that mpirun passes to a remote shell.

    The words before the daemon's name set paths of the launcher's machine. The host replaces them with its
    own paths. If the user's shell is plain sh, the command is in parentheses, and reads `.profile` first.
    """
    words = shlex.split(" ".join(command))
    [index] = [number for number, word in enumerate(words) if Path(word).name == ORTED]
    relocated = any(word.startswith("OPAL_PREFIX=") for word in words[:index])
    arguments = words[index + 1 :]
    return Daemon(arguments[:-1] if arguments[-1:] == [")"] else arguments, relocated)


if __name__ == "__main__":
    main()
