"""MPI: a launcher in rank 0 that starts the processes in all instances, without ssh."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout, Role, Traits

_LAUNCHER = "launcher"


class Mpi:
    """Programs that `mpirun` starts.

    `trainer_kit.mpi` runs mpirun in rank 0, and mpirun's daemon in each instance that trains.

    Rank 0 also runs training processes, unless the group has a `launcher`. MPI itself gives each process its
    rank and the number of processes.
    """

    traits = Traits(starts_processes=True, roles={_LAUNCHER: Role(at_most=1, takes_rank_0=True)})

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """Return the environment variables with which instance number `rank` joins its group."""
        return {
            "MASTER_ADDR": layout.master.host,
            "MASTER_PORT": str(layout.master.port),
            "MPI_INSTANCES": str(layout.size),
            "MPI_INSTANCE": str(rank),
            "MPI_SLOTS": str(layout.processes_per_instance),
            "MPI_LAUNCHER_SLOTS": "0" if layout.roles[0] == _LAUNCHER else str(layout.processes_per_instance),
        }

    def command(
        self,
        layout: GroupLayout,  # noqa: ARG002  # it is in the environment of each instance
        command: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Return the command that every instance runs.

        In rank 0, it launches `command` with mpirun. On each instance that trains, it runs mpirun's daemon.
        """
        return ("python", "-m", "trainer_kit.mpi", *command)
