"""A service that trains its jobs, and the file of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sweeps import FILE, Trainer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_service import ServerInThread


@pytest.fixture
def trainer(training: ServerInThread) -> Trainer:
    return Trainer(training.service)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a sweep as a file, alone in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "search.toml").write_text(FILE)
    return tmp_path / "search.toml"
