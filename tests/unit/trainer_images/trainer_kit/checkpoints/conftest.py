from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.trainers.checkpoints import FaultyFileSystem, Start


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
