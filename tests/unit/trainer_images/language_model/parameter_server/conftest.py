from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import outcome_of
from tests.support.trainers.launcher import Launcher

# The module is named, not imported: its import of PyTorch warns, which is an error here.
PROGRAM = "tests.support.trainers.programs.parameter_server"
SIZES = [1, 2, 3, 4, 5]


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]
) -> dict[int, list[dict[str, Any]]]:
    """The results that each rank prints, by the number of processes of its group."""
    with Launcher(tmp_path_factory.mktemp("parameter-server"), forks=forks) as launcher:
        return dict(zip(SIZES, outcome_of(launcher, PROGRAM, *SIZES), strict=True))
