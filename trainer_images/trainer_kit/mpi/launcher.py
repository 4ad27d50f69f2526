"""Instance 0: it gathers the hosts, runs mpirun, and passes on what mpirun's agents ask for."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from trainer_kit.errors import GroupError
from trainer_kit.mpi import agent, programs
from trainer_kit.mpi.channel import LONGEST_LINE, Channel, Message, StrangerError
from trainer_kit.mpi.place import Place

LOST = 1
"""What an agent is told of a host that is gone: mpirun takes it for a daemon that failed, and ends."""


async def launch(place: Place, mpirun: str, command: Sequence[str]) -> int:
    """Runs `command` in all processes of the group, and gives mpirun's exit code.

    Raises GroupError when not all hosts have come within the meeting's timeout.
    """
    hosts = Hosts(place)
    # On loopback nobody else need see the port.
    address = place.meeting.host if place.meeting.on_loopback else None
    async with await asyncio.start_server(hosts.welcome, address, place.meeting.port, limit=LONGEST_LINE):
        try:
            await hosts.complete()
            with TemporaryDirectory(prefix="mpi-hosts-") as folder:
                hostfile = Path(folder) / "hosts"
                hostfile.write_text(hostfile_of(place))
                program = command_line(place, mpirun, str(hostfile), command)
                return await programs.run(program, agent.environment_of(place))
        finally:
            await hosts.dismiss()


def hostfile_of(place: Place) -> str:
    """A line for each host. The names are no machine's, so mpirun starts an agent even for its own."""
    return "".join(
        f"{agent.HOST_PREFIX}{instance} slots={slots}\n" for instance, slots in place.hosts.items()
    )


def command_line(place: Place, mpirun: str, hostfile: str, command: Sequence[str]) -> list[str]:
    """How mpirun is started."""
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": f"{sys.executable} -m {agent.__name__}",
        # Every daemon is started from here: the hosts have no agents.
        "plm_rsh_no_tree_spawn": "1",
        # The hosts' names are made up; a look-up could take its whole time-out.
        "if_base_do_not_resolve": "1",
        # Containers may not read each other's memory, nor their own processes'.
        "btl_vader_single_copy_mechanism": "none",
        # Instances may share cores: one that waits leaves them to the others.
        "mpi_yield_when_idle": "1",
    }
    if place.meeting.on_loopback:
        settings |= {
            # The instances share a machine, and meet on it.
            "oob_tcp_if_include": "lo",
            "btl_tcp_if_include": "lo",
            # Their shared memory would have the same names.
            "btl": "self,tcp",
        }
    return [
        mpirun,
        *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        # So that a daemon stays the child of its host, which sees its end.
        "--leave-session-attached",
        # What an instance may use of a machine is for the service to say.
        *("--bind-to", "none"),
        *("--hostfile", hostfile),
        *("-np", str(sum(place.hosts.values()))),
        *(word for name, value in settings.items() if not _is_set(name) for word in ("--mca", name, value)),
        *command,
    ]


def _is_set(name: str) -> bool:
    """Whether the user has set this setting of Open MPI."""
    return f"OMPI_MCA_{name}" in os.environ


class Hosts:
    """The instances that run processes, as they come and go."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._channels: dict[int, Channel] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._changed = asyncio.Event()
        self._visits: set[asyncio.Task[None]] = set()

    async def complete(self) -> None:
        """Waits until all are here. Raises GroupError, saying who is missing, after the meeting's timeout."""
        try:
            async with asyncio.timeout(self._place.meeting.timeout):
                while missing := self._place.hosts.keys() - self._channels.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            names = ", ".join(map(str, sorted(missing)))
            raise GroupError(
                f"waited {self._place.meeting.timeout} s at {self._place.meeting}, and these of "
                f"{self._place.instances} instances did not come: {names}"
            ) from error

    async def dismiss(self) -> None:
        """Tells all that nothing more will come, and ends their connections."""
        for channel in self._channels.values():
            with suppress(OSError):
                await channel.send(done=True)
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one who has connected: a host, an agent, or a stranger, who is shown the door."""
        visit = asyncio.create_task(self._serve(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            channel = await Channel.accepted(reader, writer, self._place.token)
        except StrangerError:
            return
        try:
            greeting = await channel.receive()
            if "host" in greeting:
                await self._keep(greeting["host"], channel)
            else:
                await channel.send(ended=await self._run(greeting["on"], greeting["run"]))
        except (OSError, EOFError):
            pass  # gone; for a host, `_keep` has told its agent
        finally:
            channel.close()

    async def _keep(self, instance: int, channel: Channel) -> None:
        """Counts `instance` as here while it is connected; a second one of the number is sent away."""
        if instance in self._channels:
            return
        self._channels[instance] = channel
        end = self._ends[instance] = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            end.set_result((await channel.receive())["ended"])
            await channel.receive()
        finally:
            del self._channels[instance]
            if not end.done():
                end.set_result(LOST)

    async def _run(self, instance: int, daemon: Message) -> int:
        """Has `instance` run the daemon, and gives its exit code."""
        if channel := self._channels.get(instance):
            await channel.send(run=daemon)
            return await self._ends[instance]
        return LOST
