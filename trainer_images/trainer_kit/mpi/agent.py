"""What mpirun starts in the place of ssh: it has a host run a daemon, and lives as long as that."""

import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trainer_kit import environment
from trainer_kit.mpi.channel import Channel
from trainer_kit.mpi.place import Place

HOST_PREFIX = "instance-"
ORTED = "orted"
FAILURE = 1


class Daemon(NamedTuple):
    """What mpirun wants to be run on a host."""

    arguments: list[str]
    relocated: bool
    """Whether Open MPI is not where it was built to be, so that it has to be told its place."""


def environment_of(place: Place) -> dict[str, str]:
    """What agents of this launcher need to reach it, on the same machine."""
    return {"MPI_AGENT_HOST": place.meeting.host if place.meeting.on_loopback else "127.0.0.1"}


def main() -> None:
    """`… HOST COMMAND…`: exits with the daemon's exit code, or with 1 if the launcher is gone."""
    host, *command = sys.argv[1:]
    try:
        code = asyncio.run(_ask(int(host.removeprefix(HOST_PREFIX)), daemon_of(command)))
    except (OSError, EOFError):
        code = FAILURE
    sys.exit(code)


async def _ask(instance: int, daemon: Daemon) -> int:
    channel = await Channel.connected(
        environment.text("MPI_AGENT_HOST"),
        environment.integer("MASTER_PORT", default=12356, at_least=1, at_most=65_535),
        environment.text("GROUP_TOKEN"),
    )
    await channel.send(on=instance, run=daemon._asdict())
    code: int = (await channel.receive())["ended"]
    return code


def daemon_of(command: Sequence[str]) -> Daemon:
    """The daemon in the shell command that mpirun would have a remote shell run.

    What stands before the daemon's name sets paths of the launcher's machine; the host knows its own. For
    a user whose shell is plain sh, all of it is in parentheses, after a look for a profile.
    """
    words = shlex.split(" ".join(command))
    [place] = [number for number, word in enumerate(words) if Path(word).name == ORTED]
    relocated = any(word.startswith("OPAL_PREFIX=") for word in words[:place])
    arguments = words[place + 1 :]
    return Daemon(arguments[:-1] if arguments[-1:] == [")"] else arguments, relocated)


if __name__ == "__main__":
    main()
