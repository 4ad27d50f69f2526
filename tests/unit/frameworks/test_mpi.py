"""The complete environment for MPI, as trainer_kit reads it."""

from job_tracker.frameworks import FRAMEWORKS
from tests.support.layouts import THREE, layout


def test_a_separate_launcher_has_no_slots() -> None:
    mpi = FRAMEWORKS["mpi"]
    variables = mpi.environment(layout("master", "worker", processes=4), 1)
    assert variables == {
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "20000",
        "MPI_INSTANCES": "2",
        "MPI_INSTANCE": "1",
        "MPI_SLOTS": "4",
        "MPI_LAUNCHER_SLOTS": "4",
    }
    assert mpi.environment(layout("launcher", "worker", "worker"), 0)["MPI_LAUNCHER_SLOTS"] == "0"
    assert mpi.command(THREE, ("python", "t.py")) == ("python", "-m", "trainer_kit.mpi", "python", "t.py")
