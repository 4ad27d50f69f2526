"""Messages of the command line if the service cannot start."""

from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from job_tracker.domain.errors import StoreUnavailable
from training_service import main
from training_service.commands import app
from training_service.settings import Settings


def test_an_unavailable_store_at_the_start_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(settings: Settings, file: object) -> None:
        raise StoreUnavailable("the job store cannot read: disk I/O error")

    monkeypatch.setattr(main, "run", run)
    ended = CliRunner().invoke(app, ["serve", "--data-dir", str(tmp_path)])
    assert ended.exit_code == 2
    assert ended.stderr == "training-service: the job store cannot read: disk I/O error\n"


def test_the_version_is_that_of_the_package() -> None:
    ended = CliRunner().invoke(app, ["--version"])
    assert (ended.exit_code, ended.stdout) == (
        0,
        f"training-service {metadata.version('training-service')}\n",
    )
