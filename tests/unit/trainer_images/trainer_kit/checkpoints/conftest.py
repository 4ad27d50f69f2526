from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.trainers.checkpoints import FaultyFileSystem, Start
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.launcher import Launcher


@pytest.fixture
def launcher(tmp_path: Path, forks: Sequence[ForkServer]) -> Iterator[Launcher]:
    with Launcher(tmp_path, forks=forks) as launcher:
        yield launcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job's checkpoints."""
    return tmp_path / "checkpoints"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Start:
    return Start(monkeypatch, str(folder))


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Start]:
    """Like `start`, on a disk that fails according to `FaultyFileSystem.fault`."""
    yield Start(monkeypatch, f"faulty://{folder}")
    FaultyFileSystem.fault = ""
