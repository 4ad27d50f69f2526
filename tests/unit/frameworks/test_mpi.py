"""What MPI is told, whole: as the kit takes it."""

from job_tracker.frameworks import FRAMEWORKS
from tests.support.layouts import THREE, layout


def test_mpi_starts_slots_in_every_instance_but_a_launcher_of_its_own() -> None:
    mpi = FRAMEWORKS["mpi"]
    told = mpi.environment(layout("master", "worker", processes=4), 1)
    assert told == {
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "20000",
        "MPI_INSTANCES": "2",
        "MPI_INSTANCE": "1",
        "MPI_SLOTS": "4",
        "MPI_LAUNCHER_SLOTS": "4",
    }
    assert mpi.environment(layout("launcher", "worker", "worker"), 0)["MPI_LAUNCHER_SLOTS"] == "0"
    assert mpi.command(THREE, ("python", "t.py")) == ("python", "-m", "trainer_kit.mpi", "python", "t.py")
