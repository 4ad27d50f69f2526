"""The launcher, instance 0: it waits for the hosts, runs mpirun, and forwards the agents' requests."""

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
"""The exit code that an agent gets for a lost host.

Mpirun then assumes that the daemon has failed, and ends.
"""


async def launch(place: Place, mpirun: str, command: Sequence[str]) -> int:
    """Run `command` in all processes of the group, and return mpirun's exit code.

    Raises GroupError if not all hosts connect within the meeting's time-out.
    """
    hosts = Hosts(place)
    # If the whole group is on loopback, listen only there; otherwise, listen on all addresses.
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
    """Return the text of mpirun's hostfile.

    The hosts have made-up names. Mpirun takes them for other machines, so it starts the agent (agent.py) for
    each host.
    """
    return "".join(
        f"{agent.HOST_PREFIX}{instance} slots={slots}\n" for instance, slots in place.hosts.items()
    )


def command_line(place: Place, mpirun: str, hostfile: str, command: Sequence[str]) -> list[str]:
    """Return the command line of mpirun."""
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": f"{sys.executable} -m {agent.__name__}",
        # Start every daemon from here: agents reach the launcher only from its own machine.
        "plm_rsh_no_tree_spawn": "1",
        # The names of the hosts are artificial, and a look-up could take its full time-out.
        "if_base_do_not_resolve": "1",
        # Containers cannot read the memory of other processes.
        "btl_vader_single_copy_mechanism": "none",
        # Instances may share cores, so a waiting process yields its core.
        "mpi_yield_when_idle": "1",
    }
    if place.meeting.on_loopback:
        settings |= {
            # The instances are on one machine.
            "oob_tcp_if_include": "lo",
            "btl_tcp_if_include": "lo",
            # Do not use shared memory, because its names would collide between the instances.
            "btl": "self,tcp",
        }
    return [
        mpirun,
        *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        # Without this option, a daemon would detach itself, and the program that started it could not wait
        # for it.
        "--leave-session-attached",
        # The service decides which cores an instance may use.
        *("--bind-to", "none"),
        *("--hostfile", hostfile),
        *("-np", str(sum(place.hosts.values()))),
        *(word for name, value in settings.items() if not _is_set(name) for word in ("--mca", name, value)),
        *command,
    ]


def _is_set(name: str) -> bool:
    """Return whether the user has set this parameter of Open MPI."""
    return f"OMPI_MCA_{name}" in os.environ


class Hosts:
    """The connected instances that run processes."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._channels: dict[int, Channel] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._changed = asyncio.Event()
        self._visits: set[asyncio.Task[None]] = set()

    async def complete(self) -> None:
        """Wait until each host, an instance that runs processes, has connected.

        Raises GroupError, which names the missing instances, if this takes longer than `meeting.timeout`.
        """
        try:
            async with asyncio.timeout(self._place.meeting.timeout):
                while missing := self._place.hosts.keys() - self._channels.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            names = ", ".join(map(str, sorted(missing)))
            raise GroupError(
                f"{len(missing)} of {self._place.instances} instances did not connect to "
                f"{self._place.meeting} within {self._place.meeting.timeout} s: instances {names}"
            ) from error

    async def dismiss(self) -> None:
        """Tell all hosts that the launcher is done, and close their connections."""
        for channel in self._channels.values():
            with suppress(OSError):
                await channel.send(done=True)
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of a host or an agent. Close any other connection."""
        visit = asyncio.create_task(self._serve(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            channel = await Channel.accepted(reader, writer, self._place.token)
        except (StrangerError, TimeoutError):
            return
        try:
            greeting = await channel.receive()
            if "host" in greeting:
                await self._keep(greeting["host"], channel)
            else:
                await channel.send(ended=await self._run(greeting["on"], greeting["run"]))
        except (OSError, EOFError):
            pass  # the peer is gone; for a host, `_keep` has notified its agent
        finally:
            channel.close()

    async def _keep(self, instance: int, channel: Channel) -> None:
        """Register `instance` while it is connected. Reject a second connection with the same number."""
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
        """Let `instance` run the daemon, and return the daemon's exit code; LOST if the instance is gone."""
        if channel := self._channels.get(instance):
            await channel.send(run=daemon)
            return await self._ends[instance]
        return LOST
