from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.trainer_images.language_model.all_reduce import program
from tests.unit.trainer_images.language_model.groups import outcome_of
from tests.unit.trainer_images.support import Launcher

SIZES = [2, 3, 4, 6]

Cases = list[list[dict[str, Any]]]
"""What each rank said of each case."""


@pytest.fixture(scope="session")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Cases]]:
    """What groups of these sizes tell of their sums."""
    launcher = Launcher(tmp_path_factory.mktemp("all-reduce"))
    try:
        yield dict(zip(SIZES, outcome_of(launcher, program.__name__, *SIZES), strict=True))
    finally:
        launcher.close()
