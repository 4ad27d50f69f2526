"""MPI: a launcher in rank 0 that starts processes in all instances, without ssh."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout, Role, Traits

_LAUNCHER = "launcher"


class Mpi:
    """Programs that `mpirun` starts: `trainer_kit.mpi` runs it in rank 0, and what it asks for in the others.

    A launcher of its own hosts no processes; without one the master does so, too. How many there are, and
    which of them a process is, MPI itself tells.
    """

    traits = Traits(starts_processes=True, roles={_LAUNCHER: Role(at_most=1, takes_rank_0=True)})

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The variables of the instance `rank`."""
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
        layout: GroupLayout,  # noqa: ARG002  # each instance is told of it by its environment
        command: tuple[str, ...],
    ) -> tuple[str, ...]:
        """The command, started in every instance by way of the launcher."""
        return ("python", "-m", "trainer_kit.mpi", *command)
