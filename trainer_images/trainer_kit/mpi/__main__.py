"""The life of one instance of an MPI group; see the package."""

import asyncio
import signal
import sys
from typing import NoReturn

from trainer_kit.errors import TrainingError
from trainer_kit.mpi import programs
from trainer_kit.mpi.host import host
from trainer_kit.mpi.launcher import launch
from trainer_kit.mpi.place import Place
from trainer_kit.termination import SIGNALS, exit_code_for

SUCCESS = 0


def main() -> NoReturn:
    """Exits with mpirun's code in the launcher; in other instances with 0 when the launcher is done.

    1 stands for a group that did not come together or fell apart, 143 for SIGTERM.
    """
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m trainer_kit.mpi COMMAND…")
    try:
        sys.exit(asyncio.run(_run(command)))
    except TrainingError as error:
        sys.exit(f"error: {error}")


async def _run(command: list[str]) -> int:
    """Takes part until the end or a signal."""
    told: list[signal.Signals] = []
    part = asyncio.create_task(_take_part(Place.from_environment(), command))

    def end(signum: signal.Signals) -> None:
        if not told:  # ending takes a moment, and is not to be cut short
            part.cancel()
        told.append(signum)

    for signum in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, end, signum)
    try:
        return await part
    except asyncio.CancelledError:
        return exit_code_for(told[0])


async def _take_part(place: Place, command: list[str]) -> int:
    if not place.launches:
        await host(place, programs.find("orted", command))
        return SUCCESS
    if 0 not in place.hosts:
        return await launch(place, programs.find("mpirun", command), command)
    hosting = asyncio.create_task(host(place, programs.find("orted", command)))
    try:
        return await launch(place, programs.find("mpirun", command), command)
    finally:
        hosting.cancel()
        await asyncio.gather(hosting, return_exceptions=True)


if __name__ == "__main__":
    main()
