"""The role of a host: it runs mpirun's daemon for the launcher."""

import asyncio

from trainer_kit.errors import GroupError
from trainer_kit.meeting import FIRST_PAUSE, LONGEST_PAUSE, unreachable
from trainer_kit.mpi import programs
from trainer_kit.mpi.agent import Daemon
from trainer_kit.mpi.channel import Channel, StrangerError
from trainer_kit.mpi.place import Place


async def host(place: Place, orted: str) -> None:
    """Run the daemon that the launcher requests (the program `orted`) until the launcher is done.

    Raises GroupError if the launcher does not answer in time, cannot be authenticated or is lost, or if the
    daemon cannot run. No process is left running.
    """
    channel = await _reach_launcher(place)
    try:
        await channel.send(host=place.instance)
        order = await channel.receive()
        if "run" in order:
            await _run_until_done(channel, orted, Daemon(**order["run"]))
    except (OSError, EOFError) as error:
        raise GroupError(f"lost the launcher at {place.meeting}: {error}") from error
    finally:
        channel.close()


async def _run_until_done(channel: Channel, orted: str, daemon: Daemon) -> None:
    """Run the daemon until the launcher is done. Report to the launcher if the daemon ends first.

    Raises GroupError if the daemon cannot run.
    """
    environment = {"OPAL_PREFIX": programs.prefix_of(orted)} if daemon.relocated else {}
    running = asyncio.create_task(programs.run([orted, *daemon.arguments], environment))
    done = asyncio.create_task(channel.receive())
    try:
        await asyncio.wait([running, done], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            if (error := running.exception()) is not None:
                raise GroupError(f"could not run {orted}, the daemon of mpirun: {error}") from error
            await channel.send(ended=running.result())
        await done
    finally:
        running.cancel()
        done.cancel()
        await asyncio.gather(running, done, return_exceptions=True)


async def _reach_launcher(place: Place) -> Channel:
    """Connect to the launcher, with retries until the meeting's time-out, and return the channel."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + place.meeting.timeout
    pause = FIRST_PAUSE
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                return await Channel.connected(place.meeting.host, place.meeting.port, place.token)
        except StrangerError as error:
            raise GroupError(f"could not authenticate the launcher at {place.meeting}: {error}") from error
        except OSError as error:
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise unreachable(place.meeting, error) from error
            await asyncio.sleep(min(pause, remaining))
            pause = min(2 * pause, LONGEST_PAUSE)
