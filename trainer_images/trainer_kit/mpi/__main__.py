"""Runs one instance of an MPI group; see the package."""

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
    """Exit with mpirun's code in the launcher, and with 0 in other instances when the launcher is done.

    The exit code is 1 for a group that was not complete in time or lost an instance, 143 after SIGTERM, and
    130 after SIGINT.
    """
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m trainer_kit.mpi COMMAND…")
    try:
        sys.exit(asyncio.run(_run(command)))
    except TrainingError as error:
        sys.exit(f"error: {error}")


async def _run(command: list[str]) -> int:
    """Run this instance's roles until they end or a signal arrives."""
    signals: list[signal.Signals] = []
    roles = asyncio.create_task(_run_roles(Place.from_environment(), command))

    def end(signum: signal.Signals) -> None:
        if not signals:  # a second signal must not interrupt the clean-up
            roles.cancel()
        signals.append(signum)

    for signum in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, end, signum)
    try:
        return await roles
    except asyncio.CancelledError:
        return exit_code_for(signals[0])


async def _run_roles(place: Place, command: list[str]) -> int:
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
