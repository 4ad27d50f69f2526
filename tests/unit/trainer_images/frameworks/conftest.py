from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.trainer_images.frameworks.support import launcher_of
from tests.unit.trainer_images.support import Launcher


@pytest.fixture
def tensorflow(tmp_path: Path) -> Iterator[Launcher]:
    launcher = launcher_of("tensorflow_questions", tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture
def jax(tmp_path: Path) -> Iterator[Launcher]:
    launcher = launcher_of("jax_questions", tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture
def horovod(tmp_path: Path) -> Iterator[Launcher]:
    launcher = launcher_of("horovod_questions", tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture
def mpi(tmp_path: Path) -> Iterator[Launcher]:
    launcher = launcher_of("mpi_questions", tmp_path)
    yield launcher
    launcher.close()
